"""Real input: every flight that left New York in 2013, through `topics` and back.

python -m examples.flights demo                 the whole story with a server of its own, kill -9 included
python -m examples.flights load [--url URL]     into a running server; run it again to resume
python -m examples.flights check [--url URL]    compare every airline with the CSV
python -m examples.flights forget EWR-IAH       delete one route by its tag; then: check --without EWR-IAH
"""

from __future__ import annotations

import argparse

from examples.flights import steps
from examples.flights.client import Client, Refused
from examples.flights.data import flights_in_time_order, package_rows
from examples.flights.demo import demo, timed_load


def run(step: str, url: str, route: str, without: str) -> None:
    if step == "demo":
        demo(flights_in_time_order(package_rows()), route)
        return
    client = Client(url)
    if step == "load":
        print(timed_load(client, flights_in_time_order(package_rows())))
    elif step == "check":
        steps.compare(client, flights_in_time_order(package_rows()), without)
    else:
        print(f"{steps.forget(client, route):,} records of {route} deleted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["demo", "load", "check", "forget"])
    parser.add_argument("route", nargs="?", default="EWR-IAH")
    parser.add_argument("--url", default="http://127.0.0.1:4000")
    parser.add_argument("--without", default="", metavar="ROUTE", help="check: this route was deleted")
    options = parser.parse_args()
    try:
        run(options.step, options.url, options.route, options.without)
    except Refused as error:
        raise SystemExit(str(error)) from None
    except OSError as error:
        raise SystemExit(f"no answer from {options.url} ({error}): start one with `make serve`") from None


if __name__ == "__main__":
    main()
