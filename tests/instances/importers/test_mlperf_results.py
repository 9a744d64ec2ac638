"""MLPerf's results, from tables and from trees of logs, and the performance data that ships from them."""

import shlex
from pathlib import Path

import pytest

from provision.cli import main
from provision.instances.importers.mlperf import import_mlperf, parse_batches
from provision.models.base.errors import InputError
from provision.models.performance.catalogue import load_performance, shipped_performance

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "benchmarks" / "mlperf_results.csv"
SHIPPED = [name for name in shipped_performance() if name.startswith("mlperf-")]
OFFLINE = "Scenario : Offline\nSamples per second: 800\nResult is : VALID\n"
SERVER = "Scenario : Server\nScheduled samples per second : 600\nResult is : VALID\n"
SINGLE = """Scenario : SingleStream
90th percentile latency (ns) : 3000000
Result is : VALID
Mean latency (ns)               : 2000000
samples_per_query : 1
"""


@pytest.fixture
def tree(tmp_path):
    for scenario, summary in (("Offline", OFFLINE), ("Server", SERVER), ("SingleStream", SINGLE)):
        folder = tmp_path / "Boxx2_TRT" / "resnet50" / scenario / "performance" / "run_1"
        folder.mkdir(parents=True)
        (folder / "mlperf_log_summary.txt").write_text(summary)
    return tmp_path


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_data_is_what_its_command_makes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shipped = load_performance(name)
    out = tmp_path / "again.yaml"
    assert main([*shlex.split(shipped.command)[1:], "--out", str(out)]) == 0
    assert out.read_bytes() == (ROOT / "models" / "performance" / "data" / f"{name}.yaml").read_bytes()
    assert shipped.error is not None
    assert "Apache-2.0" in shipped.source


def test_what_ships():
    assert {load_performance(name).gpu for name in SHIPPED} == {"h100-80gb", "a30", "l4", "l40s", "a10"}


def test_a_tree_of_logs(tree):
    data = import_mlperf(tree, "l4", ["Boxx2_TRT"], batches=parse_batches("resnet50=16x2"))
    alone, full = sorted(data.models["resnet50"].points, key=lambda point: point.batch)
    assert alone == ("whole", 1, 1, 500.0, 3.0)
    assert full == ("whole", 16, 2, 400.0, 80.0)
    served = import_mlperf(tree, "l4", ["Boxx2_TRT"], scenario="server", batches={"resnet50": (16, 2)})
    assert [point.throughput_rps for point in served.models["resnet50"].points if point.batch == 16] == [300.0]
    assert import_mlperf(tree, "l4", ["Boxx2_TRT"]).models["resnet50"].points == (alone,)
    four = import_mlperf(tree, "l4", ["Boxx2_TRT"], batches={"resnet50": (16, 2)}, devices=4)
    assert max(point.throughput_rps for point in four.models["resnet50"].points) == 500.0


def test_runs_that_are_not_valid(tree):
    path = next(tree.glob("*/*/Offline/performance/run_1/*.txt"))
    path.write_text(OFFLINE.replace("VALID", "INVALID"))
    with pytest.raises(InputError, match="INVALID, not VALID"):
        import_mlperf(tree, "l4", ["Boxx2_TRT"])


@pytest.mark.parametrize("value", ["-3", "fast", "inf"])
def test_numbers_that_are_none(tree, value):
    path = next(tree.glob("*/*/Offline/performance/run_1/*.txt"))
    path.write_text(OFFLINE.replace("800", value))
    with pytest.raises(InputError, match="Samples per second should be a number above 0"):
        import_mlperf(tree, "l4", ["Boxx2_TRT"])


def test_devices_that_a_name_does_not_say(tree):
    (tree / "Boxx2_TRT").rename(tree / "Box")
    with pytest.raises(InputError, match="give --devices N"):
        import_mlperf(tree, "l4", ["Box"])
    with pytest.raises(InputError, match="name a submitter's folder"):
        import_mlperf(tree / "Box", "l4", ["Box"])


def test_batches_that_do_not_read(tree):
    with pytest.raises(InputError, match="MODEL=BATCHxSTREAMS"):
        parse_batches("resnet50=0x1")
    (tree / "Boxx2_TRT" / "resnet50" / "SingleStream" / "performance" / "run_1" / "mlperf_log_summary.txt").unlink()
    with pytest.raises(InputError, match="say it with --batches"):
        import_mlperf(tree, "l4", ["Boxx2_TRT"])


def test_the_error_is_the_distance_to_other_systems():
    data = import_mlperf(TABLE, "l40s", ["ESC8000_E11_L40Sx8_TRT"], check=["SYS-521GE-TNRT_L40S_PCIe_48GBx8_TRT"])
    assert data.error.points == 3
    assert data.error.max == pytest.approx(369341 / 345124 - 1, abs=1e-4)


def test_fleets_of_the_new_types_are_planned(tmp_path, capsys):
    (tmp_path / "instance.yaml").write_text(
        "{version: 1, name: new, fleet: [{gpu: l4, price: aws}, {gpu: h100-80gb, mig: false, price: nebius}], "
        "performance: [mlperf-l4, mlperf-h100-80gb], policy: {latency_budget: half_slo}, "
        "workloads: [{name: a, model: resnet50, slo_ms: 20, rate_rps: 20000}, "
        "{name: b, model: retinanet, slo_ms: 100, rate_rps: 900}]}"
    )
    assert main(["solve", str(tmp_path / "instance.yaml"), "--time-limit", "10", "--no-replay"]) == 0
    printed = capsys.readouterr().out
    assert "h100-80gb" in printed
    assert "l4" in printed
