"""Real input: every flight that left New York in 2013, through `topics` and back.

python -m examples.flights demo                 the whole story with a server of its own, kill -9 included
python -m examples.flights load [--url URL]     into a running server; run it again to resume
python -m examples.flights check [--url URL]    compare every airline with the CSV
python -m examples.flights forget EWR-IAH       delete one route by its tag; then: check --without EWR-IAH
python -m examples.flights delays [--path DIR]  roll up delays by airline and month on Spark: Parquet, a topic, a chart
"""

from __future__ import annotations

import argparse
from pathlib import Path

import topics
from examples.flights import delays, steps
from examples.flights.data import flights_in_time_order, package_rows
from examples.flights.demo import demo, timed_load


def run(options: argparse.Namespace) -> None:
    step, route = options.step, options.route
    if step == "demo":
        demo(flights_in_time_order(package_rows()), route)
        return
    with topics.connect(options.url) as client:
        run_step(client, options)


def run_step(client: topics.Client, options: argparse.Namespace) -> None:
    step, route = options.step, options.route
    if step == "delays":
        roll_up(client, options)
    elif step == "load":
        print(timed_load(client, flights_in_time_order(package_rows())))
    elif step == "check":
        steps.compare(client, flights_in_time_order(package_rows()), options.without)
    else:
        print(f"{steps.forget(client, route):,} records of {route} deleted")


def roll_up(client: topics.Client, options: argparse.Namespace) -> None:
    from topics.spark import session  # noqa: PLC0415 - the other steps need no Spark

    quiet = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session("flights", config=quiet)
    out = Path(options.out)
    source = {"url": options.url, **({"path": options.path} if options.path else {})}
    rows = delays.delays(client, spark, source, out)
    print(delays.told(rows))
    print(f"{out}/delays (Parquet), {out}/delays.png, and topic {delays.RESULT}: {len(rows)} airlines and months")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["demo", "load", "check", "forget", "delays"])
    parser.add_argument("route", nargs="?", default="EWR-IAH")
    parser.add_argument("--url", default="http://127.0.0.1:4000")
    parser.add_argument("--without", default="", metavar="ROUTE", help="check: this route was deleted")
    parser.add_argument("--path", default="", help="delays: the server's data directory, read beside it")
    parser.add_argument("--out", default="flights-out", metavar="DIR", help="delays: where Parquet and the chart go")
    options = parser.parse_args()
    try:
        run(options)
    except topics.NoAnswerError as error:
        raise SystemExit(f"{error}: start a server with `make serve`") from None
    except topics.TopicsError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
