"""Own measurements and MLPerf's results become tables that can be planned with, between their batches too."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.cli import main
from provision.instances.files.files import load, validate
from provision.instances.importers.csv_table import import_csv, parse_columns
from provision.instances.importers.parvagpu import import_tables
from provision.models.base.errors import InputError
from provision.models.fitting.waves import between_error
from provision.models.performance.bands import Spot
from provision.models.performance.catalogue import PerformanceFile, band_of
from provision.models.performance.measured_segments import MeasuredModel, MeasuredPoint, MeasuredSegments
from provision.models.performance.operating_points import Member

DATA = Path(__file__).parents[4] / "shared" / "data"
GPU = "a100-80gb"
TIMES = [(1, 5.0), (2, 6.2), (4, 8.9), (8, 14.0), (16, 25.0)]
TABLE = "B,ms\n" + "".join(f"{batch},{ms}\n" for batch, ms in TIMES)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(TABLE)
    return path


def test_batch_and_latency_suffice(table):
    data = import_csv(table, GPU, "mine", parse_columns("batch=B,latency_ms=ms"), "1g.10gb")
    rows = data.models["mine"].points
    assert [(row.batch, row.latency_ms) for row in rows] == TIMES
    assert all(row.profile == "1g.10gb" and row.processes == 1 for row in rows)
    assert [row.throughput_rps for row in rows] == pytest.approx([1000 * batch / ms for batch, ms in TIMES])


def test_every_field_where_there_is_a_column(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("model,profile,batch,processes,throughput_rps,latency_ms\nx,2g.20gb,4,2,300,20\ny,7g.80gb,1,1,90,9\n")
    data = import_csv(path, GPU, "unused", parse_columns(""))
    assert data.models["x"].points == (MeasuredPoint("2g.20gb", 4, 2, 300.0, 20.0),)
    assert data.models["y"].points == (MeasuredPoint("7g.80gb", 1, 1, 90.0, 9.0),)
    assert data.between_batches is None


def test_every_wrong_row_is_told(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("batch,latency_ms\n1,5\n2,fast\n0,7\n1.5,8\n")
    with pytest.raises(InputError) as refused:
        import_csv(path, GPU, "mine", parse_columns(""))
    assert [line.split(":")[1] for line in refused.value.lines] == ["3", "4", "5"]


@pytest.mark.parametrize(("named", "factor"), [("latency_us=L", 1000), ("latency_s=L", 0.001), ("latency_ms=L", 1)])
def test_a_field_may_name_the_unit_of_its_column(tmp_path, named, factor):
    path = tmp_path / "own.csv"
    path.write_text(f"batch,L,D\n1,{5 * factor},{0.5 * factor}\n")
    columns = parse_columns(f"{named},{named.replace('latency', 'spread')[:-1]}D")
    assert import_csv(path, GPU, "mine", columns).models["mine"].points[0].latency_ms == pytest.approx(5 + 2 * 0.5)


@pytest.mark.parametrize(("given_columns", "words"), [
    ("bach=B", "did you mean 'batch'?"), ("batch", "FIELD=COLUMN"), ("batch=B,latency_ms=mss", "is missing"),
    ("batch=B,latency_ms=ms,profile=slice", "'slice' is missing"),
])
def test_columns_that_are_not_there(table, given_columns, words):
    with pytest.raises(InputError, match=words):
        import_csv(table, GPU, "mine", parse_columns(given_columns))


def test_the_command_states_the_error_and_the_file_is_planned_with(table, tmp_path, capsys):
    line = f"import csv {table} --gpu {GPU} --model mine --profile 1g.10gb --columns batch=B,latency_ms=ms --out"
    out = tmp_path / "mine.yaml"
    assert main([*line.split(), str(out)]) == 0
    assert "mean error 1.5%" in capsys.readouterr().out
    (tmp_path / "instance.yaml").write_text(
        f"{{version: 1, name: own, fleet: [{{gpu: {GPU}}}], performance: mine.yaml, "
        "workloads: [{name: a, model: mine, slo_ms: 40, rate_rps: 3000}]}"
    )
    assert main(["solve", str(tmp_path / "instance.yaml"), "--time-limit", "10"]) == 0
    assert "b12 p1" in capsys.readouterr().out
    assert main([*line.split(), str(tmp_path / "only.yaml"), "--measured-only"]) == 0
    assert "between_batches" not in load(tmp_path / "only.yaml")


@given(
    times=st.lists(st.floats(0.1, 100), min_size=2, max_size=8),
    steps=st.lists(st.integers(1, 40), min_size=8, max_size=8),
    margin=st.floats(0, 0.5),
)
def test_arrays_and_the_scalar_path_agree(times, steps, margin):
    batches = np.cumsum(steps)[: len(times)].tolist()
    measured = zip(batches, times, strict=True)
    points = [MeasuredPoint("1g.10gb", batch, 2, 700 * batch / ms, ms) for batch, ms in measured]
    error = {"mean": 0.0, "p95": 0.0, "max": 1.0, "points": 1, "margin": margin}
    content = {"version": 1, "name": "x", "kind": "measured-segments", "gpu": GPU, "models": {"m": {"points": points}}}
    found = validate(PerformanceFile, content | {"between_batches": error}, "x")
    offered = found.operating_points("m", "1g.10gb")
    assert set(batches) <= set(offered.batch.tolist())
    for batch, latency_ms, rps in zip(offered.batch, offered.latency_ms, offered.throughput_rps, strict=True):
        [alone] = found.predict("1g.10gb", [Member("m", int(batch), 2, 1.0)])
        assert (alone.latency_ms, alone.throughput_rps) == pytest.approx((latency_ms, rps))
        assert latency_ms >= min(times) * (1 - 1e-9)
    assert found.predict("1g.10gb", [Member("m", batches[-1] + 1, 2, 1.0)]) == [None]


def test_files_that_do_not_say_so_have_measured_batches_only():
    points = [MeasuredPoint("1g.10gb", batch, 1, 100.0 * batch, 10.0) for batch in (1, 4)]
    data = MeasuredSegments(
        version=1, name="x", kind="measured-segments", gpu=GPU, models={"m": MeasuredModel(points=points)}
    )
    assert data.operating_points("m", "1g.10gb").batch.tolist() == [1, 4]
    assert data.predict("1g.10gb", [Member("m", 2, 1, 1.0)]) == [None]
    assert "between_batches" not in data.model_dump()


@pytest.mark.skipif(not (DATA / "parvagpu").exists(), reason="needs ParvaGPU's tables in shared/data")
def test_the_stated_error_covers_what_was_left_out():
    """With every second batch of ParvaGPU's tables the stated margin covers nine tenths of the batches left out."""
    whole = import_tables(DATA / "parvagpu").models
    thin = {name: _thinned(model) for name, model in whole.items()}
    error = between_error(thin)
    data = MeasuredSegments(
        version=1, name="x", kind="measured-segments", gpu=GPU, models=thin, between_batches=error
    )
    ratios = [
        alone.latency_ms / point.latency_ms
        for name, model in whole.items() for point in model.points if point not in thin[name].points
        for alone in data.predict(point.profile, [Member(name, point.batch, point.processes, 1.0)]) if alone
    ]
    assert len(ratios) > 300
    assert np.mean(np.array(ratios) >= 1) > 0.9


def _thinned(model):
    return MeasuredModel(points=[point for points in model.series.values() for point in points[::2]])


def test_points_that_were_measured_several_times_give_their_own_bands(tmp_path):
    """The mean of the runs counts; where there are enough of them their spread is the band of that batch size."""
    random, path = np.random.default_rng(5), tmp_path / "own.csv"
    runs = {1: np.exp(random.normal(math.log(5), 0.02, 40)), 8: np.exp(random.normal(math.log(20), 0.1, 40)),
            16: np.array([40.0, 41.0])}
    path.write_text("batch,latency_ms\n" + "".join(f"{batch},{ms}\n" for batch, times in runs.items() for ms in times))
    data = import_csv(path, GPU, "mine", parse_columns(""), "1g.10gb")
    means = [one.mean() for one in runs.values()]
    assert [row.latency_ms for row in data.models["mine"].points] == pytest.approx(means)
    assert all(row.throughput_rps == pytest.approx(1000 * row.batch / row.latency_ms)
               for row in data.models["mine"].points)
    bands = {batch: band_of(data, "mine", Spot("1g.10gb", batch)).service for batch in (1, 8, 16)}
    for batch, deviation in ((1, 0.02), (8, 0.1)):
        assert math.log(bands[batch].high) == pytest.approx(1.645 * deviation, rel=0.4)
    assert bands[1].high < bands[16].high < bands[8].high  # two runs say less than all that were repeated
    assert validate(PerformanceFile, data.model_dump(mode="json"), "x").bands == data.bands


def test_columns_are_known_by_other_names_and_told(tmp_path, capsys):
    path, out = tmp_path / "own.csv", tmp_path / "own.yaml"
    path.write_text("Modell;Batch Size;latency_us\na;1;5000\na;2;6200\nb;1;900\n")
    assert main(["import", "csv", str(path), "--gpu", "l4", "--out", str(out)]) == 0
    assert "Batch Size as batch, latency_us as latency_ms, times 0.001" in capsys.readouterr().out
    models = load(out)["models"]
    assert [point[4] for point in models["a"]["points"]] == [5.0, 6.2] and models.keys() == {"a", "b"}


def test_a_decimal_comma_among_commas_is_refused(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("batch,latency_ms\n1,4.5,\n8,1234,5\n")
    with pytest.raises(InputError, match=r"own\.csv:3: has more cells than the header"):
        import_csv(path, GPU, "mine", parse_columns(""))


def test_rows_of_several_models_are_not_taken_for_runs_of_one(tmp_path):
    """Words in a column that nobody named, and times of one batch size that are far apart."""
    path = tmp_path / "own.csv"
    path.write_text("net,batch,latency_ms\nsmall,1,5\nlarge,1,50\n")
    with pytest.raises(InputError, match=r"times from 5 to 50 ms; if column 'net' names models, call it model"):
        import_csv(path, GPU, "mine", parse_columns(""))
    assert import_csv(path, GPU, "mine", parse_columns("model=net")).models.keys() == {"small", "large"}
    path.write_text("host,batch,latency_ms\na,1,5.0\nb,1,5.4\n")
    assert import_csv(path, GPU, "mine", parse_columns("")).models["mine"].points[0].latency_ms == pytest.approx(5.2)


def test_points_that_were_measured_once_have_no_band(table):
    assert import_csv(table, GPU, "mine", parse_columns("batch=B,latency_ms=ms"), "1g.10gb").bands is None
