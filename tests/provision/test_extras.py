"""The lean core: what needs no extra works without any, and what needs one says which in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import provision
from provision.models.base.errors import EXTRAS, InputError, optional

SHOP = """
version: 2
name: shop
fleet: [{gpu: a100-80gb, price_per_hour: 0.90, count: 4}, {gpu: a100-80gb, price: aws}]
performance: [parvagpu-a100]
workloads:
  - {name: search, model: bert, slo_ms: 500, rate_rps: 12}
  - {name: tags, model: resnet50, slo_ms: 100, rate_rps: 250, min_replicas: 2}
"""
WORKS = (
    "solve parvagpu-s2 --out plan.json", "verify parvagpu-s2 plan.json", "show plan.json --html plan.html",
    "export plan.json --to shell --out out", "solve shop.yaml --time-limit 8",
)
REPLAYED = {"igniter-testbed-12": "igniter", "gpulets-equal": "gpulets", "mlperf-llama-3.1-8b-server": "auto"}
"""By instance the method that makes a plan to replay: slices that are shared, turns, language models."""
REFUSED = {
    "show plan.json --png plan.png": "matplotlib is not installed; pip install 'gpu-provision[draw]'",
    "apply parvagpu-s2 plan.json --via kubernetes --nodes n1 --yes":
        "pynvml is not installed; pip install 'gpu-provision[kubernetes]'",
    "status": "pynvml is not installed; pip install 'gpu-provision[driver]'",
    "export plan.json --to mig-parted --out parted": "pynvml is not installed; pip install 'gpu-provision[driver]'",
}
BLOCKED = set(EXTRAS) - {"pandas", "torch"}
"""OR-Tools brings pandas, and SciPy looks whether torch has been imported."""
CORE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
given = json.load(sys.stdin)
sys.modules |= dict.fromkeys(given["blocked"])
from provision.cli import main
answers = {}
for line in given["lines"]:
    with redirect_stdout(io.StringIO()) as answer, redirect_stderr(io.StringIO()) as told:
        answers[line] = main(line.split()), told.getvalue(), answer.getvalue()
json.dump(answers, sys.stdout)
"""




@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the README's instance, with less traffic, and plans to replay."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "shop.yaml").write_text(SHOP)
    for name, method in REPLAYED.items():
        provision.write(provision.solve(provision.read(name), method, 10, replay=False).plan, folder / f"{name}.json")
    return folder


def _replay(name):
    return f"simulate {name} {name}.json --seconds 1 --json"


@pytest.fixture(scope="module")
def ended(folder):
    """Exit code, stderr and stdout of verbs, run in turn where no package of an extra can be imported."""
    given = json.dumps({"blocked": sorted(BLOCKED), "lines": [*WORKS, *REFUSED, *map(_replay, REPLAYED)]})
    ran = subprocess.run([sys.executable, "-c", CORE], cwd=folder, input=given, capture_output=True, text=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("line", WORKS)
def test_the_core_needs_no_extra(line, ended):
    assert ended[line][0] == 0


def test_the_core_replays_what_it_solves(ended):
    assert "replayed" in ended["solve shop.yaml --time-limit 8"][2].casefold()


@pytest.mark.parametrize("name", REPLAYED)
def test_plain_python_replays_as_compiled_kernels_do(name, ended, folder):
    plan = provision.read_plan(folder / f"{name}.json")
    compiled = provision.simulate(provision.read(name), plan, 1).summary()
    assert json.loads(ended[_replay(name)][2]) == json.loads(json.dumps(compiled))


@pytest.mark.parametrize("line", REFUSED)
def test_what_needs_an_extra_names_it(line, ended):
    assert ended[line][:2] == [2, f"error: {REFUSED[line]}\n"]


def test_a_package_that_no_extra_brings_is_no_mistake_of_the_user():
    with pytest.raises(ModuleNotFoundError), optional():
        import no_such_package  # noqa: F401
    with pytest.raises(InputError, match=r"pip install 'gpu-provision\[pandas\]'"), optional():
        raise ModuleNotFoundError(name="pandas.io")


def test_every_extra_is_declared():
    setup = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in setup for extra in EXTRAS.values())
