"""``provision veltair``: tables, pictures, verdicts, and what it refuses."""

import csv
import json

import pytest

from provision.cli import main
from provision.heuristics.veltair.veltair import Machine
from provision.studies.study import LOADS, RATES_RPS, Study, shapes

PNG = b"\x89PNG"


def test_figure_10_as_json(capsys):
    """One object; the blocks cover ResNet-50's layers in order and get fewer cores with more queries beside them."""
    code = main(["veltair", "--figure", "10", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if all(shape["holds"] for shape in found["shapes"]) else 1)
    plans = {row["plan"]: row for row in found["figure_10"]}
    for row in plans.values():
        ends = [0, *(end for _, end, _ in row["cut"])]
        assert [begin for begin, _, _ in row["cut"]] == ends[:-1]
        assert ends[-1] == 54
    peaks = [plans[f"blocks, {number} sharing"]["peak_cores"] for number in range(1, 6)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] == plans["layer-wise"]["peak_cores"]
    assert found["files"] == []


def test_figure_3_falls_with_the_rate_and_is_written_once(tmp_path, capsys):
    """Fewer queries keep their QoS at higher rates; files are not overwritten; the same seed gives the same table."""
    command = ["veltair", "--figure", "3", "--queries", "150", "--out", str(tmp_path / "out")]
    assert main(command) in (0, 1)
    text = (tmp_path / "out" / "figure-3.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert {float(row["rate_rps"]) for row in rows} == set(RATES_RPS)
    for name in {row["scheduler"] for row in rows}:
        satisfied = [float(row["satisfied"]) for row in rows if row["scheduler"] == name]
        assert satisfied[0] > 0.9 > satisfied[-1]
    assert (tmp_path / "out" / "figure-3.png").read_bytes().startswith(PNG)
    capsys.readouterr()
    assert main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*command, "--force"]) in (0, 1)
    assert (tmp_path / "out" / "figure-3.csv").read_text() == text
    capsys.readouterr()
    code = main(["veltair", "--figure", "3", "--queries", "150", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if all(shape["holds"] for shape in found["shapes"]) else 1)


@pytest.mark.parametrize(("extra", "message"), [
    (["--queries", "10"], "--queries: should be at least 100"),
    (["--seed", "-1"], "--seed: should be at least 0"),
    (["--out", "/dev/null/here"], "cannot be written"),
])
def test_refused_before_any_work(extra, message, capsys):
    """One line, exit code 2."""
    assert main(["veltair", "--figure", "3", *extra]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_all_figures_are_drawn(tmp_path, monkeypatch, capsys):
    """Every picture and table is there; capacities, which take long, are not searched for."""
    monkeypatch.setattr(Machine, "capacity_rps", lambda machine, name, load: machine.full_rps(load) / 2)
    versions = [{"most_versions": number, "capacity_rps": 1.0, "gain": 0.1 * number} for number in range(1, 6)]
    monkeypatch.setattr(Study, "figure_14b", lambda study: versions)
    main(["veltair", "--queries", "100", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"figure-{part}.csv" for part in ("3", "10", "12", "13", "14a", "14b", "14c")]
        + [f"figure-{name}.png" for name in ("3", "10", "12", "13", "14")]
    )
    assert "modelled, not measured" in capsys.readouterr().out


def test_shapes_that_do_not_come_out():
    """Verdicts follow the numbers."""
    names = ("model-wise", "layer-wise", "blocks-6", "blocks-11", "blocks-27")
    rows = [{"rate_rps": rate, "scheduler": name, "satisfied": part, "mean_latency_ms": 10 - part} for rate in RATES_RPS
            for name, part in zip(names, (0.9, 0.5, 0.95, 0.8, 0.7), strict=True)]
    assert [shape.holds for shape in shapes({"3": rows})] == [True, False, False]
    rows[-2]["satisfied"] = 0.99
    assert [shape.holds for shape in shapes({"3": rows})] == [True, True, False]
    rows[-1]["mean_latency_ms"] = 1
    assert [shape.holds for shape in shapes({"3": rows})] == [True, True, True]
    rows[0]["satisfied"] = 0.96
    assert [shape.holds for shape in shapes({"3": rows})] == [False, True, True]
    gaps = [{"system_load": load, "scheduler": name, "core_gap": gap} for load in LOADS
            for name, gap in (("veltair-as", 0.2), ("model-wise", 0.3))]
    assert [shape.holds for shape in shapes({"14a": gaps})] == [False, True]


def test_parts_of_the_layers_add_up():
    """Every layer has between one and five versions."""
    rows = Study(100).figure_14c()
    assert [row["versions"] for row in rows] == [1, 2, 3, 4, 5]
    assert sum(row["part"] for row in rows) == pytest.approx(1)
