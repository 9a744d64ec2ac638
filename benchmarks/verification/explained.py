"""What ``provision explain`` answers about the two instances of docs/explain.md, line by line.

Run as ``python benchmarks/verification/explained.py [--time-limit S] [--results DIR]``.
"""

import argparse
import re
import sys
from pathlib import Path

import yaml

import provision
from provision.answers.explain import explain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results

MIXED = re.compile(r"```yaml\n(.*?name: mixed.*?)```", re.DOTALL)
CHAT = {
    "version": 2, "name": "chat", "fleet": [{"gpu": "h100-80gb", "price": "aws", "mig": False}],
    "performance": "guidellm-h100-80gb",
    "workloads": [{
        "name": "chat", "model": "llama-3.1-8b", "rate_rps": 20, "slo": {"ttft_ms": 1000, "tpot_ms": 40},
        "tokens": {"input": {"mean": 512, "p99": 2048}, "output": {"mean": 128, "p99": 512}}}],
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=20, help="seconds of each plan and of each explanation")
    results.add_results(parser)
    options = parser.parse_args()
    mixed = yaml.safe_load(MIXED.search((results.ROOT / "docs/explain.md").read_text())[1])
    rows = []
    for content in (mixed, CHAT):
        instance = provision.Instance.model_validate(content)
        plan = provision.solve(instance, time_limit_s=options.time_limit).plan
        sections = explain(instance, plan, time_limit_s=options.time_limit).sections()
        lines = [text for title, told in sections.items() for text in (f"{title}:", *(f"  {one}" for one in told))]
        rows += [(instance.name, number, text) for number, text in enumerate(lines, start=1)]
        print("\n".join(lines), flush=True)
    results.write(options.results, "explained", ("instance", "line", "text"), rows, seeds=(0,))
    return 0


if __name__ == "__main__":
    sys.exit(main())
