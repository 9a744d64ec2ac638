"""Importers on a few lines of what is published, in ``../shared/data/excerpts`` with their licences."""

from pathlib import Path

import pytest

from provision.instances.importers.mlperf import import_mlperf
from provision.instances.importers.parvagpu import import_scenario, import_tables
from provision.instances.importers.servegen import import_servegen
from provision.instances.importers.tokens.guidellm import read_guidellm
from provision.instances.importers.tokens.inference_perf import read_inference_perf
from provision.instances.importers.tokens.inferno import read_inferno
from provision.instances.importers.tokens.iterations import read_splitwise
from provision.instances.importers.tokens.vllm_bench import read_vllm_bench
from provision.models.base.errors import InputError
from provision.models.performance.tokens.loads import TokenCounts

DATA = Path(__file__).resolve().parents[4] / "shared/data/excerpts"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the public excerpts are not in shared/")
GPU = "a100-80gb"


def test_parvagpu_tables():
    """Throughput times processes, ms for seconds, and no row that ran out of memory."""
    models = import_tables(DATA / "parvagpu").models
    assert list(models) == ["bert", "resnet50"]
    assert ("1g.10gb", 4, 2, 2 * 61.767, 65.0) in models["bert"].points
    assert (len(models["bert"].points), len(models["resnet50"].points)) == (8, 6)


@pytest.mark.parametrize(("row", "slos", "rates"), [(1, [6434, 204], [19, 829]), (3, [4294, 138], [46, 1463])])
def test_parvagpu_scenarios(row, slos, rates):
    instance = import_scenario(DATA / "parvagpu", row, safety=0.9)
    assert [one.slo_ms for one in instance.workloads] == slos
    assert [one.rate_rps for one in instance.workloads] == rates


def test_mlperf():
    systems = ["DGX-A100_A100-SXM-80GBx8_TRT", "DGX-A100_A100-SXM-80GB-MIG_1x1g.10gb_TRT_HeteroMultiUse"]
    found = import_mlperf(DATA / "mlperf/server.csv", GPU, systems)
    assert {point.profile for point in found.models["resnet50"].points} == {"whole", "1g.10gb"}
    for point in (point for model in found.models.values() for point in model.points):
        assert point.latency_ms * point.throughput_rps == pytest.approx(1000 * point.batch * point.processes)
    with pytest.raises(InputError, match="did you mean"):
        import_mlperf(DATA / "mlperf/server.csv", GPU, ["DGX-A100_A100-SXM-80GBx8_TR"])
    with pytest.raises(InputError, match="a30 has no profile"):
        import_mlperf(DATA / "mlperf/server.csv", "a30", systems)


def test_servegen():
    instance, demand = import_servegen(DATA / "servegen/rates.csv", 2, 0, 3)
    assert demand.rates_rps.shape == (3, 2) and demand.window_s == 600
    assert [one.rate_rps for one in instance.workloads] == pytest.approx(demand.rates_rps.mean(axis=0))
    with pytest.raises(InputError, match="windows"):
        import_servegen(DATA / "servegen/rates.csv", 2, 0, 4)


def test_guidellm():
    """A run at a constant rate, and one whose clocks were broken: it has percentiles and no mean."""
    sound, broken = read_guidellm(DATA / "llm/guidellm.json")
    assert (sound.load.arrivals, sound.load.burst, sound.completed, sound.failed, sound.unfinished) == (
        "constant", 8, 2922, 0, 16)
    assert sound.load.rate_rps == pytest.approx(8.141, abs=1e-3)
    assert sound.ttft.percentiles[99] == pytest.approx(32.7, abs=0.1)
    assert sound.load.output == TokenCounts.uniform(128, 384)
    assert sound.load.prompt.mean == pytest.approx(sound.prompt.mean)
    assert broken.ttft.mean is None and broken.ttft.percentiles[50] == pytest.approx(23.4, abs=0.1)


def test_inferno():
    instance = read_inferno(DATA / "inferno")
    [server] = instance.servers
    assert (len(instance.accelerators), len(instance.profiles)) == (1, 1)
    assert instance.target(server).itl_ms > 0
    assert (instance.solution[server.name].accelerator, instance.solution[server.name].replicas) == ("G2", 3)


def test_vllm_bench_splitwise_and_inference_perf():
    [run] = read_vllm_bench(DATA / "formats/vllm-bench-inferencex.json")
    assert run.ttft.percentiles == pytest.approx({50.0: 3138.24, 99.0: 16561.81}, rel=1e-5)
    assert (run.load.arrivals, run.load.concurrency, run.prompt.mean) == ("closed", 16, 10240)
    rows = read_splitwise(DATA / "llm/splitwise_perf_model.csv")
    assert len(rows) == 3 and rows[0].prompt_ms == pytest.approx(196.253, abs=1e-3)
    spec = read_inference_perf(DATA / "formats/inference-perf.yml")
    assert [stage.rate_rps for stage in spec.stages] == [1.0]
    with pytest.raises(InputError, match="data set"):
        spec.loads()
