"""Every importer on the samples in ``tests/data``, which are made up: what a file says is what comes out."""

from pathlib import Path

import pytest

from provision.cli import main, parser
from provision.instances.files.demand import read_demand
from provision.instances.files.files import load, validate
from provision.instances.importers.pairs import read_alone, read_beside, read_pairs
from provision.instances.importers.tokens.guidellm import read_guidellm, read_guidellm_csv
from provision.instances.importers.tokens.inference_perf import read_inference_perf
from provision.instances.importers.tokens.inferno import read_inferno
from provision.instances.importers.tokens.performance import read_benchmarks
from provision.instances.importers.tokens.vllm_bench import read_vllm_bench
from provision.instances.read import read, read_plan
from provision.models.performance.catalogue import PerformanceFile
from provision.models.performance.tokens.loads import TokenCounts

DATA = Path(__file__).resolve().parents[2] / "data"
GPU = "a100-80gb"
SERVER = f"--gpu {GPU} --model heron-7b --kv-tokens 100000"
COMMANDS = {
    "parvagpu": ("parvagpu", "--slo-row 2 --safety 0.9"),
    "parvagpu-deployment": ("parvagpu-deployment/map.csv", "--instance {scenario}"),
    "igniter": ("igniter/profile.jsonl", ""),
    "perf-analyzer": ("perf-analyzer", f"--gpu {GPU}"),
    "model-analyzer": ("model-analyzer/metrics-model-inference.csv", f"--gpu {GPU} --profile 1g.10gb"),
    "servegen": ("servegen/rates.csv", "--demand {demand} --clients 2 --windows 3"),
    "csv": ("csv/heron.csv", f"--gpu {GPU}"),
    "mlperf": ("mlperf/server.csv", f"--gpu {GPU} --system lab-A100-SXM-80GBx4 --check rack-A100-SXM-80GBx8 "
                                    "--system lab-A100-SXM-80GB-MIG_1x1g.10gb"),
    "guidellm": ("guidellm/sweep.json", SERVER),
    "vllm": ("vllm/bench.json", SERVER),
    "aiperf": ("aiperf/profile_export.jsonl", f"{SERVER} --concurrency 1"),
    "splitwise": ("splitwise/perf_model.csv", f"{SERVER} --hardware a100-80gb"),
    "muxserve": ("muxserve/profile.json", SERVER),
    "wva": ("wva/variant.yaml", SERVER),
    "inferno": ("inferno", ""),
}
"""By format: the sample, and the options of ``provision import``."""


@pytest.fixture
def imported(tmp_path):
    """What imports a sample by its format and gives the file that was written."""
    def run(name):
        path, options = COMMANDS[name]
        if "{scenario}" in options:
            run("parvagpu")
        made = {"scenario": tmp_path / "parvagpu.yaml", "demand": tmp_path / "demand.csv"}
        out = tmp_path / f"{name}.yaml"
        assert main(["import", name, str(DATA / path), *options.format(**made).split(), "--out", str(out)]) == 0
        return out
    return run


def performance(path):
    """The performance data in a file."""
    return validate(PerformanceFile, load(path), path)


def test_every_format_has_a_sample():
    """But operators, which composes what the package's own laws say, and those that read what runs."""
    [formats] = [one for one in parser("import")._all() if one.prog.endswith(" import")]
    assert set(formats._subparsers._group_actions[0].choices) == {*COMMANDS, "operators", "kubernetes", "gpus"}


def test_parvagpu(imported):
    """Throughput times processes, ms for seconds, SLOs cut to whole ms, and no row that ran out of memory."""
    instance = read(str(imported("parvagpu")))
    assert [(one.model, one.slo_ms, one.rate_rps) for one in instance.workloads] == [
        ("heron", 300, 60), ("wren", 80, 500)]
    points = instance.performance[0].models["heron"].points
    assert ("1g.10gb", 4, 1, 76.923, 52.0) in points and ("1g.10gb", 4, 2, 2 * 48.193, 83.0) in points
    assert len(points) == 29 and ("1g.10gb", 16, 2) not in {point[:3] for point in points}


def test_parvagpu_deployment(imported):
    """Rates in proportion to throughput."""
    [gpu] = read_plan(imported("parvagpu-deployment")).gpus
    assert [(one.profile, one.start) for one in gpu.slices] == [("3g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6)]
    rates = [one.replicas[0].rate_rps for one in gpu.slices]
    assert rates[0] == 60 and rates[1] > rates[2] and sum(rates[1:]) == pytest.approx(500)


def test_igniter(imported):
    """Latency is (1.5 batch + 2) / share + 0.5 ms there, 12 kernels' delays within the last."""
    [heron] = performance(imported("igniter")).models.values()
    assert (heron.k2_ms, heron.k3_ms) == pytest.approx((1.5, 2.0), rel=1e-3) and heron.k5_ms < 0.5


def test_triton(imported):
    """Rows with at most as many requests in flight as processes count, us become ms."""
    points = performance(imported("perf-analyzer")).models["heron"].points
    assert points == (("1g.10gb", 4, 1, 180.0, 23.0), ("1g.10gb", 4, 2, 240.0, 34.5))
    points = performance(imported("model-analyzer")).models["heron"].points
    assert set(points) == {("1g.10gb", 1, 1, 60.0, 17.5), ("1g.10gb", 4, 2, 230.0, 35.5)}


def test_servegen(imported, tmp_path):
    """The two busiest clients of three."""
    instance = read(str(imported("servegen")))
    assert [one.rate_rps for one in instance.workloads] == pytest.approx([43.75 / 3, 36.5 / 3])
    demand = read_demand(tmp_path / "demand.csv")
    assert demand.window_s == 600 and demand.rates_rps.tolist() == [[0.5, 10.0], [3.25, 14.5], [40.0, 12.0]]


def test_own_measurements(imported):
    rows = performance(imported("csv")).models["heron"].points
    assert [(one.batch, one.processes, one.latency_ms) for one in rows] == [
        (1, 1, 10), (2, 1, 16), (4, 1, 28), (8, 1, 52), (4, 2, 45)]


def test_mlperf(imported):
    """A batch takes batch * streams / samples per second of a device; the other system's have 1 % less each."""
    data = performance(imported("mlperf"))
    small, whole = sorted(data.models["resnet50"].points)
    assert (small, whole[:4]) == (("1g.10gb", 8, 1, 2500.0, 3.2), ("whole", 64, 2, 24000.0))
    assert whole.latency_ms == pytest.approx(128 / 24)
    assert data.models["bert-99"].points[0].throughput_rps == 2400 and data.error.mean == pytest.approx(0.01, abs=1e-3)


def test_guidellm_runs():
    """Three runs; the clock of the last was broken: it has percentiles and no mean."""
    closed, steady, broken = read_guidellm(DATA / "guidellm/sweep.json")
    assert (closed.load.arrivals, closed.load.concurrency, closed.ttft.mean) == ("closed", 1, 12.0)
    assert (steady.load.arrivals, steady.load.rate_rps, steady.load.burst) == ("constant", 4.5, 4)
    assert (steady.completed, steady.failed, steady.unfinished) == (267, 0, 3)
    assert steady.ttft.percentiles[99] == pytest.approx(26.82) and steady.e2e.mean == pytest.approx(490)
    assert broken.ttft.mean is None and broken.ttft.percentiles[50] == 25


def test_guidellm_csv_finds_cells_that_the_header_does_not_name():
    """The second run has requests that were not finished, whose cells push the others to the right."""
    closed, open_ = read_guidellm_csv(DATA / "guidellm/sweep.csv")
    assert (closed.load.arrivals, open_.load.arrivals, open_.load.rate_rps) == ("closed", "poisson", 5)
    for run in (closed, open_):
        assert (run.ttft.mean, run.tpot.mean, run.itl.mean, run.e2e.mean) == (15, 9, 8, 1000)
        assert (run.prompt.mean, run.output.mean) == (100, 60)
        assert run.load.output == TokenCounts.uniform(20, 100)
    assert (open_.rate_rps, open_.completed, open_.unfinished) == (4.93, 296, 4)


def test_vllm_runs():
    quick, *_ = read_vllm_bench(DATA / "vllm/bench.json")
    assert (quick.load.arrivals, quick.load.rate_rps, quick.ttft.percentiles[99]) == ("poisson", 1, 40)
    [run] = read_vllm_bench(DATA / "vllm/in-seconds.json")
    assert run.ttft.percentiles == {50.0: 250, 99.0: 1500}
    assert (run.load.arrivals, run.load.concurrency, run.prompt.mean) == ("closed", 8, 100)


def test_aiperf_requests():
    """The warm-up is left out, and an answer failed."""
    [run] = read_benchmarks("aiperf", [DATA / COMMANDS["aiperf"][0]], 1)
    assert (run.completed, run.failed, run.ttft.mean, run.itl.mean) == (3, 1, 22, pytest.approx(8.2))


@pytest.mark.parametrize(("name", "decode_ms"), [("guidellm", 6.0), ("vllm", 8.0), ("aiperf", 8.2)])
def test_fits_to_benchmarks(imported, name, decode_ms):
    """A request alone has about the time between tokens that was measured at the lowest load.

    No engine has the times of all runs of the samples: the fit is a compromise.
    """
    there = performance(imported(name)).models["heron-7b"].slices["whole"]
    assert there.iteration_ms(1, 130) == pytest.approx(decode_ms, rel=0.35)


@pytest.mark.parametrize("name", ["splitwise", "muxserve", "wva"])
def test_fits_to_iterations(imported, name):
    """An iteration takes 12 ms and more per sequence, 0.08 ms per token of a prompt."""
    there = performance(imported(name)).models["heron-7b"].slices["whole"]
    assert there.iteration_ms(0, 0) == pytest.approx(12, rel=0.02) and there.token_ms == pytest.approx(0.08, rel=0.05)


def test_inferno(imported):
    """Accelerators of unknown types are left out."""
    given = read_inferno(DATA / "inferno")
    [server] = given.servers
    assert (len(given.accelerators), len(given.profiles), given.target(server).itl_ms) == (3, 3, 30)
    assert (given.solution[server.name].accelerator, given.solution[server.name].replicas) == ("A100", 1)
    instance = read(str(imported("inferno")))
    assert {entry.gpu: entry.price_per_hour for entry in instance.fleet} == {GPU: 0.4, f"4x{GPU}": 1.5}
    assert [one.rate_rps for one in instance.workloads] == [1.5]


def test_inference_perf():
    spec = read_inference_perf(DATA / "inference-perf/spec.yml")
    assert (spec.ttft_ms, spec.tpot_ms, spec.model) == (400, 25, "heron-7b")
    first, second = spec.loads()
    assert (first.rate_rps, second.duration_s, first.arrivals) == (2, 30, "poisson")
    assert first.prompt.mean == 100 and first.output.mean == pytest.approx(60, abs=0.5)


def test_measured_neighbours():
    """SM shares become fractions; the throughput may be missing."""
    [heron] = read_alone(str(DATA / "colocation/alone.csv")).values()
    assert heron.sm_share.tolist() == [0.25, 0.5, 1] * 2 and heron.latency_ms[0] == 3
    pairs = read_beside(str(DATA / "colocation/beside.csv"))
    assert pairs.model.tolist() == [["heron", "wren"], ["wren", "heron"]] and pairs.sm_share[0].tolist() == [0.4, 0.6]
    utilisation, slowdown = read_pairs(DATA / "gpulets/pairs.csv")
    assert utilisation[:, 0].tolist() == [0.2, 0.5, 0.1, 0.4] and slowdown.tolist() == [1.12, 1.05]
