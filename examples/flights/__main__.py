"""Real input: every flight that left New York in 2013, through `topics` and back.

python -m examples.flights demo                 the whole story with a server of its own, kill -9 included
python -m examples.flights load [--url URL]     into a running server; run it again to resume
python -m examples.flights check [--url URL]    count per airline, compare with the CSV
python -m examples.flights forget EWR-IAH       delete one route by its tag
"""

from __future__ import annotations

import argparse

from examples.flights import steps
from examples.flights.client import Client
from examples.flights.demo import demo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["demo", "load", "check", "forget"])
    parser.add_argument("route", nargs="?", default="EWR-IAH")
    parser.add_argument("--url", default="http://127.0.0.1:4000")
    options = parser.parse_args()
    if options.step == "demo":
        demo(options.route)
        return
    client = Client(options.url)
    if options.step == "load":
        written, repeated = steps.load(client)
        print(f"{written:,} records written, {repeated:,} were there already")
    elif options.step == "check":
        steps.compare(client)
    else:
        print(f"{steps.forget(client, options.route):,} records of {options.route} deleted")


if __name__ == "__main__":
    main()
