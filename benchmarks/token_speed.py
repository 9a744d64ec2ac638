"""How many requests the simulator of continuous batching serves in a minute on one core.

``python benchmarks/token_speed.py [--requests 1000000]``: an 8B model on an H100, prompts of 1,024 tokens and answers
of 256 on average, Poisson arrivals at parts of what the engine does when it never runs dry.
"""

import argparse
from time import perf_counter

import numpy as np

from provision.models.fitting.tokens import TYPICAL
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.performance.tokens.operating import saturated_rps, served_ms
from provision.models.performance.tokens.records import Engine

ENGINE = Engine(budget_tokens=8192, most_sequences=1024, block_tokens=16, kv_blocks=27_500)
PROMPT, OUTPUT = TokenCounts.uniform(512, 1536), TokenCounts.uniform(128, 384)
PARTS = (0.3, 0.6, 0.9, 0.97)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, metavar="N")
    count = parser.parse_args().requests
    full_rps = saturated_rps(PROMPT, OUTPUT, ENGINE, TYPICAL)  # compiles the kernels, too
    print("| part of saturation | requests/s served | seconds for the replay | million requests per minute |")
    print("| --- | --- | --- | --- |")
    for part in PARTS:
        sent_ms = np.cumsum(np.random.default_rng(0).exponential(1000 / (part * full_rps), count))
        begun = perf_counter()
        served_ms(sent_ms, PROMPT, OUTPUT, ENGINE, TYPICAL, 0)
        took_s = perf_counter() - begun
        print(f"| {part:.0%} | {part * full_rps:.1f} | {took_s:.2f} | {count / took_s * 60 / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main()
