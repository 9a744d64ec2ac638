"""Import of Triton's perf_analyzer and Model Analyzer: their columns, their units, what is refused."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.cli import main
from provision.instances.files.files import load, validate
from provision.models.performance.catalogue import PerformanceFile

PERF_COLUMNS = [
    "Concurrency",
    "Inferences/Second",
    "Client Send",
    "Network+Server Send/Recv",
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
    "Client Recv",
    "p50 latency",
    "p90 latency",
    "p95 latency",
    "p99 latency",
]
MODEL_COLUMNS = [
    "Model",
    "Batch",
    "Concurrency",
    "Model Config Path",
    "Instance Group",
    "Max Batch Size",
    "Satisfies Constraints",
    "Throughput (infer/sec)",
    "p99 Latency (ms)",
]


def csv_text(columns, rows):
    """A file of these columns; cells that a row does not name are 7."""
    lines = [columns, *([str(row.get(column, 7)) for column in columns] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def perf_row(concurrency, throughput_rps, p99_us, **cells):
    return {"Concurrency": concurrency, "Inferences/Second": throughput_rps, "p99 latency": p99_us} | cells


def model_row(model, batch, concurrency, group, throughput_rps, p99_ms):
    cells = (model, batch, concurrency, f"{model}_config_0", group, 8, "Yes", throughput_rps, p99_ms)
    return dict(zip(MODEL_COLUMNS, cells, strict=True))


def imported(capsys, kind, path, out, *arguments):
    """The written file's points by model, and stderr."""
    assert main(["import", kind, str(path), "--gpu", "a100-80gb", "--out", str(out), "--force", *arguments]) == 0
    data = validate(PerformanceFile, load(out), out)
    return {name: sorted(model.points) for name, model in data.models.items()}, capsys.readouterr().err


numbers = st.floats(1, 1e6).map(lambda value: round(value, 2))
keys = st.tuples(
    st.sampled_from(["bert", "resnet_50"]), st.sampled_from(["1g.10gb", "whole"]), st.integers(1, 64), st.integers(1, 5)
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(keys, st.tuples(numbers, numbers), min_size=1, max_size=6))
def test_perf_analyzer_files_come_back_as_they_were(capsys, tmp_path_factory, points):
    folder = tmp_path_factory.mktemp("perf")
    expected = {}
    for (model, profile, batch, processes), (rate_rps, p99_us) in points.items():
        # Rows are sorted by throughput, not by concurrency; other levels are not operating points.
        rows = [perf_row(processes + 3, 9 * rate_rps, 9 * p99_us), perf_row(processes, rate_rps, p99_us)]
        (folder / f"{model}_{profile}_b{batch}_p{processes}.csv").write_text(csv_text(PERF_COLUMNS, rows))
        expected.setdefault(model, []).append((profile, batch, processes, rate_rps, p99_us / 1000))
    found, _ = imported(capsys, "perf-analyzer", folder, folder / "out.yaml")
    assert found == {model: sorted(rows) for model, rows in expected.items()}


def test_perf_analyzer_takes_every_row_that_tells_something_and_names_the_others(capsys, tmp_path):
    """Fewer requests in flight than processes are points with so many processes; a file of their own comes first."""
    rows = [perf_row(1, 100, 9000), perf_row(2, 180, 9500), perf_row(3, 240, 11000), perf_row(8, 260, 40000)]
    (tmp_path / "bert_whole_b8_p3.csv").write_text(csv_text(PERF_COLUMNS, rows))
    (tmp_path / "bert_whole_b8_p1.csv").write_text(csv_text(PERF_COLUMNS, [perf_row(1, 105, 8900)]))
    found, err = imported(capsys, "perf-analyzer", tmp_path, tmp_path / "out.yaml")
    assert found == {"bert": [("whole", 8, 1, 105.0, 8.9), ("whole", 8, 2, 180.0, 9.5), ("whole", 8, 3, 240.0, 11.0)]}
    assert "bert_whole_b8_p3.csv: dropped Concurrency 8: more requests in flight than processes (3)" in err


def test_perf_analyzer_takes_another_percentile(capsys, tmp_path):
    file = tmp_path / "bert_whole_b8_p1.csv"
    file.write_text(csv_text(PERF_COLUMNS, [perf_row(1, 100, 9000, **{"p50 latency": 8000})]))
    found, _ = imported(capsys, "perf-analyzer", file, tmp_path / "out.yaml", "--percentile", "50")
    assert found == {"bert": [("whole", 8, 1, 100.0, 8.0)]}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(keys.map(lambda key: (key[0], *key[2:])), st.tuples(numbers, numbers), min_size=1, max_size=6))
def test_model_analyzer_tables_come_back_as_they_were(capsys, tmp_path_factory, points):
    path = tmp_path_factory.mktemp("model") / "metrics-model-inference.csv"
    rows, expected = [], {}
    for (model, batch, processes), (rate_rps, p99_ms) in points.items():
        rows.append(model_row(model, batch, processes, f"{processes}:GPU", rate_rps, p99_ms))
        rows.append(model_row(model, batch, processes, f"{processes}:GPU", rate_rps / 2, p99_ms / 2))
        rows.append(model_row(model, batch, 6 + processes, f"{processes}:GPU", 9 * rate_rps, 9 * p99_ms))
        expected.setdefault(model, []).append(("3g.40gb", batch, processes, rate_rps, p99_ms))
    path.write_text(csv_text(MODEL_COLUMNS, rows))
    found, err = imported(capsys, "model-analyzer", path, path.with_suffix(".yaml"), "--profile", "3g.40gb")
    assert found == {model: sorted(rows) for model, rows in expected.items()}
    assert err.startswith(f"{len(points)} rows left out: not one request in flight per instance\n")


PERF = csv_text(PERF_COLUMNS, [perf_row(1, 100, 9000), perf_row(4, 300, 12000)])
RATE = csv_text(["Request Rate", *PERF_COLUMNS[1:]], [perf_row(1, 100, 9000)])
MODEL = csv_text(MODEL_COLUMNS, [model_row("bert", 8, 2, "2:GPU", 100, 9)])


@pytest.mark.parametrize(
    "kind, name, text, problem",
    [
        ("perf-analyzer", "bert.csv", PERF, "rename it like bert_2g"),
        ("perf-analyzer", "bert_whole_b8_p1.csv", PERF.replace("1,100", "3,100"), "no row at Concurrency 1 or below, "),
        ("perf-analyzer", "bert_whole_b8_p1.csv", RATE, "measure with --concurrency-range 1"),
        ("perf-analyzer", "bert_whole_b8_p1.csv", PERF.replace("p99", "p98"), "column 'p99 latency' is missing"),
        ("perf-analyzer", "bert_whole_b8_p1.csv", PERF.replace("9000", "nan"), "must be finite"),
        ("perf-analyzer", "bert_whole_b8_p1.csv", PERF.replace("9000", "0"), "should be greater than 0"),
        ("perf-analyzer", "bert_9g_b8_p1.csv", PERF, "a100-80gb has no profile '9g'"),
        ("model-analyzer", "m.csv", MODEL.replace("2:GPU", "1:GPU"), "no row with as many requests in flight"),
        ("model-analyzer", "m.csv", MODEL.replace("2:GPU", "CPU"), "m.csv:2: Instance Group 'CPU' is not one group"),
        ("model-analyzer", "m.csv", MODEL.replace("bert,8,2", 'bert,8,"2,4"'), "m.csv:2: Concurrency '2,4' is not a"),
        ("model-analyzer", "m.csv", MODEL.replace("Latency (ms)", "Latency"), "Latency \\(ms\\)' is missing"),
        ("model-analyzer", "m.csv", MODEL.replace("bert,8", "bert,0"), "should be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_used_is_one_line(capsys, tmp_path, kind, name, text, problem):
    path = tmp_path / name
    path.write_text(text)
    assert main(["import", kind, str(path), "--gpu", "a100-80gb", "--out", str(tmp_path / "out.yaml")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and str(tmp_path) in err and re.search(problem, err), err
    assert not (tmp_path / "out.yaml").exists()
