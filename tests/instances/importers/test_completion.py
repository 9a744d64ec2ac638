"""Three measured points are completed by a fitted network, on the safe side and within the memory that is known."""

from pathlib import Path

import numpy as np
import pytest

from provision.cli import main
from provision.instances.importers.csv_table import SPREADS, import_csv, parse_columns
from provision.instances.importers.parvagpu import import_tables
from provision.models.base.errors import InputError
from provision.models.fitting.families import population
from provision.models.fitting.few_points import fit_few
from provision.models.fitting.profile_points import profile_points
from provision.models.hardware.gpu import gpu_type
from provision.models.performance.catalogue import load_performance

DATA = Path(__file__).parents[4] / "shared" / "data" / "parvagpu"
GPU = "a100-80gb"
THREE = [("1g.10gb", 1, 1), ("3g.40gb", 16, 2), ("7g.80gb", 64, 3)]
NETWORK = load_performance("parvagpu-a100").models["resnet50"].coefficients


def table(tmp_path, keys=THREE, columns="profile,batch,processes,latency_ms", more=lambda key: ""):
    path = tmp_path / "own.csv"
    size = gpu_type(GPU).slice_compute
    rows = [f"{key[0]},{key[1]},{key[2]},{NETWORK.batch_latency_ms(key[1], key[2], size(key[0])):.5f}{more(key)}"
            for key in keys]
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def test_measured_points_stay_and_others_are_slower_than_a_network_alike(tmp_path):
    data = import_csv(table(tmp_path), GPU, "mine", parse_columns(""), completed=True)
    measured = import_csv(tmp_path / "own.csv", GPU, "mine", parse_columns(""))
    rows = data.models["mine"].rows
    assert all(rows[point[:3]] == point for point in measured.models["mine"].points)
    added = [point for key, point in rows.items() if key not in measured.models["mine"].rows]
    true_ms = [NETWORK.batch_latency_ms(one.batch, one.processes, gpu_type(GPU).slice_compute(one.profile))
               for one in added]
    assert len(added) > 100
    assert np.mean(np.array([one.latency_ms for one in added]) >= true_ms) > 0.9
    assert {one.profile for one in added} == {"2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}
    assert data.error is None


def test_more_points_say_more():
    gpu = gpu_type(GPU)
    keys = [*THREE, ("1g.10gb", 32, 1), ("7g.80gb", 1, 1), ("2g.20gb", 8, 4)]
    points = profile_points(gpu, keys, [NETWORK.batch_latency_ms(b, p, gpu.slice_compute(s)) for s, b, p in keys])
    few, many = (fit_few(points, range(count), population("resnet50")) for count in (3, 6))
    assert np.all(many.deviations(points) <= few.deviations(points) * 1.2)
    assert many.deviations(points).mean() < few.deviations(points).mean()
    assert np.all(few.upper_ms(points) > few.latency_ms(points))


def test_memory_says_what_fits(tmp_path):
    keys = [("7g.80gb", 1, 1), ("7g.80gb", 16, 1), ("7g.80gb", 32, 3)]
    blind = import_csv(table(tmp_path, keys), GPU, "mine", parse_columns(""), completed=True)
    assert {point.profile for point in blind.models["mine"].points if point.batch == 32} == {
        "3g.40gb", "4g.40gb", "7g.80gb"
    }
    columns = "profile,batch,processes,latency_ms,memory_gib"
    path = table(tmp_path, keys, columns, lambda key: f",{key[1] * key[2] * 0.2}")
    seeing = import_csv(path, GPU, "mine", parse_columns(""), completed=True)
    assert ("1g.10gb", 32, 1) in seeing.models["mine"].rows
    assert ("1g.10gb", 32, 2) not in seeing.models["mine"].rows
    path = table(tmp_path, keys, columns, lambda key: ",90")
    with pytest.raises(InputError, match="memory_gib 90 is more than"):
        import_csv(path, GPU, "mine", parse_columns(""))


@pytest.mark.parametrize("completed", [False, True])
def test_latencies_that_contradict_throughputs_are_refused(completed, tmp_path):
    path = table(tmp_path, columns="profile,batch,processes,latency_ms,throughput_rps", more=lambda key: ",0.01")
    with pytest.raises(InputError, match="name the unit at the end of the column"):
        import_csv(path, GPU, "mine", parse_columns(""), completed=completed)


def test_spread_lengthens_batches(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("batch,latency_ms,spread_ms\n1,5,0.5\n2,6,0\n")
    one, two = import_csv(path, GPU, "mine", parse_columns(""), "1g.10gb").models["mine"].points
    assert (one.latency_ms, one.throughput_rps) == (5 + SPREADS * 0.5, 200.0)
    assert two.latency_ms == 6


@pytest.mark.parametrize(("gpu", "keys", "words"), [
    ("h100-80gb", THREE, "no prior for h100-80gb"), (GPU, THREE[:2], "mine has 2 measured points; measure 3"),
])
def test_what_cannot_be_completed(tmp_path, gpu, keys, words):
    path = table(tmp_path, keys)
    with pytest.raises(InputError, match=words):
        import_csv(path, gpu, "mine", parse_columns(""), completed=True)


def test_the_command_and_a_plan(tmp_path, capsys):
    path, out = table(tmp_path, [*THREE, ("2g.20gb", 8, 2)]), tmp_path / "mine.yaml"
    line = f"import csv {path} --gpu {GPU} --model mine --complete --out {out}"
    assert main(line.split()) == 0
    assert "left out in turn: mean error" in capsys.readouterr().out
    (tmp_path / "instance.yaml").write_text(
        f"{{version: 1, name: own, fleet: [{{gpu: {GPU}}}], performance: mine.yaml, "
        "policy: {latency_budget: half_slo}, workloads: [{name: a, model: mine, slo_ms: 120, rate_rps: 900}]}"
    )
    assert main(["solve", str(tmp_path / "instance.yaml"), "--time-limit", "10", "--no-replay"]) == 0


@pytest.mark.skipif(not DATA.exists(), reason="needs ParvaGPU's tables in shared/data")
def test_intervals_cover_what_was_left_out():
    """Of ParvaGPU's measurements that three points per DNN leave out, nine tenths stay below the upper end."""
    gpu, covered = gpu_type(GPU), []
    for name in ("bert", "mobilenetv2", "vgg16"):
        rows = import_tables(DATA).models[name].points
        points = profile_points(gpu, [row[:3] for row in rows], [row.latency_ms for row in rows])
        known = [next(at for at, row in enumerate(rows) if row[:3] == key) for key in (
            ("1g.10gb", 1, 1), ("2g.20gb", 16, 2), ("7g.80gb", 32, 3))]
        left = points.take(np.setdiff1d(np.arange(len(rows)), known))
        covered.append(left.latency_ms <= fit_few(points, known, population(name)).upper_ms(left))
    assert np.concatenate(covered).mean() > 0.9
