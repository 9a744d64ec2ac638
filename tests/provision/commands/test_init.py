"""``provision init``: what it writes is commented, and solves as it is."""

import io
import sys

import pytest

import provision
from provision.cli import main
from provision.instances.importers.csv_table import measured_columns
from provision.starting.questions import types_with_data


def _solved(folder):
    result = provision.solve(folder / "instance.yaml", "greedy", 5, replay=False)
    return result.status != "infeasible" and result.verified


@pytest.mark.parametrize("gpu", types_with_data())
def test_what_ships_makes_an_instance_that_solves(gpu, tmp_path):
    assert main(["init", str(tmp_path), "--gpu", gpu, "--yes"]) == 0
    assert _solved(tmp_path)
    assert (tmp_path / "instance.yaml").read_text().count("\n#") >= 6


def test_questions_are_answered_on_stdin(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("l4, a10\nresnet50\n300\n25\n"))
    assert main(["init", str(tmp_path)]) == 0
    found = provision.read(tmp_path / "instance.yaml")
    assert [entry.gpu for entry in found.fleet] == ["l4", "a10"]
    assert [(one.name, one.rate_rps, one.slo_ms) for one in found.workloads] == [("resnet50", 300, 25)]
    assert "models to serve (" in capsys.readouterr().err and _solved(tmp_path)


@pytest.fixture
def tables(tmp_path):
    """A folder with two measured models, one with a spreadsheet's columns, and a day of rates, side by side."""
    (tmp_path / "search.csv").write_text("Batch Size;Latency (ms)\n1;3,1\n2;4,9\n4;8,7\n8;16,4\n")
    (tmp_path / "others.csv").write_text("model,batch,latency_ms\ntags,1,2\ntags,4,3.5\ntags,16,9\n")
    (tmp_path / "rates.csv").write_text("timestamp,search,tags\n2026-08-01 00:00,40,100\n2026-08-01 01:00,90,60\n")
    (tmp_path / "notes.csv").write_text("who,what\nme,this\n")
    return tmp_path


def test_a_folder_of_tables_makes_an_instance_that_solves(tables, capsys):
    assert main(["init", str(tables), "--gpu", "a10g", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "search.csv: measurements of search (Batch Size as batch, Latency (ms) as latency_ms)" in out
    assert "rates.csv: rates of search, tags over time" in out and "notes.csv: left out" in out
    found = provision.read(tables / "instance.yaml")
    assert {one.name: one.rate_rps for one in found.workloads} == {"search": 90, "tags": 100}
    assert found.performance[0].gpu == "a10g" and _solved(tables)


@pytest.mark.parametrize("head, factor", [
    ("batch_size,avg_latency_us,qps", 1e3), ("batch,latency us p99,rps", 1e3), ("Batchgröße,Latenz (s),rps", 1e-3)])
def test_times_are_converted_by_their_header(tmp_path, head, factor):
    rows = "".join(f"{batch},{batch * 2 * factor:g},500\n" for batch in (1, 2, 4))
    (tmp_path / "search.csv").write_text(f"{head}\n{rows}")
    assert main(["init", str(tmp_path), "--gpu", "a10g", "--yes"]) == 0
    points = provision.read(tmp_path / "instance.yaml").performance[0].models["search"].points
    assert [one.latency_ms for one in points] == pytest.approx([2, 4, 8])


@pytest.mark.parametrize("text, said", [
    ("batch,latency_ms,rps\n1,2000,500\n2,4000,500\n", "are these requests/s and milliseconds?; name the unit"),
    ("size,delay\n1,2\n", "has the columns size, delay; a table of measurements has columns batch and latency_ms"),
])
def test_tables_that_cannot_be_meant_so_end_init(tmp_path, capsys, text, said):
    (tmp_path / "search.csv").write_text(text)
    assert main(["init", str(tmp_path), "--gpu", "a10g", "--yes"]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "instance.yaml").exists()


@pytest.mark.parametrize("arguments, said", [
    (["--gpu", "a10h"], "unknown GPU type 'a10h'"),
    (["--gpu", "a100-40gb"], "a100-40gb: no data ships for it, and no table of measurements is in the folder"),
    (["--gpu", "l4", "--model", "resnet"], "model 'resnet': no data describes it"),
])
def test_what_cannot_be_is_one_line_and_writes_nothing(tmp_path, capsys, arguments, said):
    assert main(["init", str(tmp_path / "new"), "--yes", *arguments]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_unit_needs_a_mark_before_it():
    """A name that ends with s, such as times, is no column of seconds."""
    assert not measured_columns(["times", "lats", "p99us"])
    assert measured_columns(["latencyms"]) == {"latency_ms": "latencyms"}


def test_nothing_of_the_users_is_overwritten(tables, capsys):
    (tables / "measured.yaml").write_text("mine")
    assert main(["init", str(tables), "--gpu", "l4", "--yes"]) == 2
    assert "measured.yaml: exists already" in capsys.readouterr().err and not (tables / "instance.yaml").exists()
