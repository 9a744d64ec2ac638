"""What a type checker finds in the code of someone who uses the package: their typos, and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import setuptools; setuptools.setup()"
CONSUMER = '''
import provision

instance = provision.read("parvagpu-s3")
result = provision.solve(instance, time_limit_s=5)
provision.solve("parvagpu-s3", method="greedy", slack="no")
if result.plan is not None:
    report: provision.Report = provision.verify(instance, result.plan)
    names: list[str] = report.violated
    cost: float | None = report.cost_per_hour
    changed = provision.replan(instance, result.plan, allow="replicas").changes
    provision.draw.terminal.draw_terminal(result.plan, instance)
rows = provision.what_if(instance, {"rate": "0.8:1.2:0.2"}, workers=2)

provision.sovle(instance)  # attr-defined
provision.solve(instance, time_limit_s="x")  # arg-type
provision.solve(instance.name.workloads)  # attr-defined
provision.verify(instance)  # call-arg
provision.what_if(instance, vary=3)  # arg-type
result.plan.gpus  # union-attr
gpus: int = provision.gpu_type("a100-80gb").memory_gib  # assignment
'''


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The kinds of error that mypy, told to be strict, finds in CONSUMER by line, the package taken as it is built.

    What `make lint` has found out about the package is used again.
    """
    consumer = tmp_path_factory.mktemp("consumer") / "consumer.py"
    consumer.write_text(CONSUMER)
    build = [sys.executable, "-W", "ignore", "-c", BUILD, "--quiet", "build_py", "--build-lib", ".venv/built"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", str(consumer)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not ran.stderr
    errors = re.findall(r"^.*consumer\.py:(\d+): error: .*\[([a-z-]+)\]$", ran.stdout, re.MULTILINE)
    return {int(line): kind for line, kind in errors}


def test_a_type_checker_finds_typos_of_a_consumer_and_nothing_else(found):
    wanted = {
        number: line.partition("  # ")[2] for number, line in enumerate(CONSUMER.splitlines(), 1) if "  # " in line
    }
    assert found == wanted
