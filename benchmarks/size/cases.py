"""The options of the benchmarks in this folder whose cases are a kind of instance and a number of workloads."""

import argparse
from time import perf_counter, process_time

import results

from provision.models.base import clock


def options_of(description: str | None, metavar: str, cases: list[str]) -> argparse.Namespace:
    """The options on the command line: ``cases`` are the default, ``metavar`` says how a case is written."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", metavar=metavar, default=cases)
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU, in time limits too")
    results.add_results(parser)
    options = parser.parse_args()
    clock.perf_counter = process_time if options.cpu else perf_counter
    return options
