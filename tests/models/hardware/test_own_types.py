"""GPU types of the user's own: a file that is added goes like one that ships, and none hides one that ships."""

import subprocess
import sys

import pytest

from provision.cli import main
from provision.models.hardware.gpu import gpu_type, gpu_types


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder of own types, forgotten afterwards."""
    monkeypatch.setenv("PROVISION_GPUS", str(tmp_path / "gpus"))
    yield tmp_path / "gpus"
    for cached in (gpu_types, gpu_type):
        cached.cache_clear()


def _printed(capsys, name):
    assert main(["gpus", "--print", name]) == 0
    return capsys.readouterr().out


def test_an_own_type_is_planned_for_like_any_other(capsys, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(_printed(capsys, "l4").replace("name: l4", "name: rtx6000"))
    assert main(["gpus", "--add", "mine.yaml"]) == 0 and (folder / "rtx6000.yaml").exists()
    (tmp_path / "m.csv").write_text("batch,latency_ms\n1,3\n2,4\n4,6\n8,11\n")
    (tmp_path / "i.yaml").write_text(
        "version: 2\nname: i\nfleet: [{gpu: rtx6000, price_per_hour: 2}]\nperformance: [m.yaml]\n"
        "workloads: [{name: w, model: m, slo_ms: 60, rate_rps: 900}]\n")
    lines = ("import csv m.csv --gpu rtx6000 --out m.yaml", "solve i.yaml --method greedy --no-replay --out p.json",
             "verify i.yaml p.json", "show p.json", "gpus")
    for line in lines:
        ran = subprocess.run([sys.executable, "-m", "provision", *line.split()], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    assert "rtx6000" in ran.stdout


@pytest.mark.parametrize("change, said", [
    (("name: l4", "name: a10"), "name: a10 is a GPU type that ships; give yours another name"),
    (("name: l4", "name: ../l4"), "should have letters, digits, dots and hyphens only"),
    (("sms: 58", "sms: many"), "sms: should be a valid integer"),
    (("sms: 58", "smss: 58"), "smss: unknown field; remove it or check its spelling"),
])
def test_a_file_that_is_no_gpu_type_is_refused(capsys, folder, tmp_path, change, said):
    (tmp_path / "mine.yaml").write_text(_printed(capsys, "l4").replace(*change))
    assert main(["gpus", "--add", str(tmp_path / "mine.yaml")]) == 2
    assert said in capsys.readouterr().err and not folder.exists()


@pytest.mark.parametrize("name, sms, said", [("l5", "x", "sms: "), ("t4", "58", "t4 is a GPU type that ships")])
def test_a_file_that_was_spoilt_later_is_named(capsys, folder, name, sms, said):
    text = _printed(capsys, "l4").replace("name: l4", f"name: {name}").replace("sms: 58", f"sms: {sms}")
    folder.mkdir()
    (folder / "mine.yaml").write_text(text)
    gpu_types.cache_clear()
    assert main(["gpus"]) == 2
    assert "mine.yaml" in (told := capsys.readouterr().err) and said in told


def test_amazons_a10g_ships_with_its_price():
    assert (gpu_type("a10g").sms, gpu_type("a10g").memory_gib) == (80, 22.49)
