"""Options that ended in errors together, each in a fresh process; `benchmarks/verification/fresh.py` has all."""

import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2] / "support"
CASES = [("igniter", "queueing", ("survive",)), ("gpulets", "half_slo", ("survive",)),
         ("gpulets", "half_slo", ("share",)), ("network", "half_slo", ("share", "shared")),
         ("colocation", "queueing", ("even",)), ("mixed", "queueing", ("throughput",))]
SCRIPT = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from option_grid import case, freshly
for fault in freshly([case(*one) for one in {CASES!r}], workers=2):
    print(fault)
"""


def test_options_together_end_in_answers():
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:-1] == ["None"] * len(CASES)
