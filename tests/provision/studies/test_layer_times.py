"""Layer times: the file, fits that find what made the times, and the profiler where PyTorch is installed."""

import json
from functools import cache
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import yaml

from provision.cli import main
from provision.commands import layers as profile_layers
from provision.heuristics.veltair.profile import CONSTANTS, by_network, compared, cpu_of, fit_cpu, measured_networks
from provision.heuristics.veltair.versions import candidates_of
from provision.instances.files.files import validate
from provision.instances.read import write
from provision.models.base.errors import InputError
from provision.models.cpu.cpu import alone_s
from provision.models.cpu.layers import MEASURED_TOKENS, Layer, Network, conv, dense, depthwise, networks
from provision.models.cpu.times import LayerTimes, MeasuredCpu, by_level, fit_proxy
from provision.studies import layers as cpu
from provision.studies.layers import (
    Setting,
    jobs,
    measure,
    read_layer_times,
    settings,
    shipped_layer_times,
    versions_of,
    work,
)

MACHINE = {"cpu": "test", "cores": 4, "l3_mib": 32.0, "torch": "2"}
TRUTH = cpu_of((90e9, 20e9, 8e-6), 4)
BACKGROUND = [{"level": 0.5, "gbps": 5.0}, {"level": 1.0, "gbps": 10.0}]
U, V = 0.01, 0.02
LATE = {0.5: 5.0, 1.0: 1.5}


def made(times, background=()):
    """LayerTimes from rows."""
    return validate(LayerTimes, {"version": 1, "kind": "layer-times", "machine": MACHINE, "background": background,
                                 "times": times}, "made")


def layers_of(*names):
    """(network's name, Layer) of every shape of networks."""
    made = networks(MEASURED_TOKENS)
    return [(name, layer) for name in names for layer, first in
            zip(made[name].layers, made[name].firsts, strict=True) if layer.name == first]


@cache
def time_ms(layer, cores):
    """What TRUTH says, tried tiling by tiling."""
    return 1e3 * min(alone_s(one, cores, TRUTH) for one in candidates_of(layer, TRUTH))


@pytest.fixture(scope="module")
def ideal():
    """Times that the analytical model and a linear slowdown make exactly; a second version gains beside full load."""
    rows = []
    for name, layer in layers_of("resnet50", "bert-large"):
        own = layer.bytes / time_ms(layer, 1) / 1e6
        for version, slower in (("whole", 1.0), ("quarters", 1.1)):
            rows += [[name, layer.name, version, cores, 0.0, time_ms(layer, cores) * slower, 0.01] for cores in (1, 2)]
        for level, gbps in ((0.5, 5.0), (1.0, 10.0)):
            rows.append([name, layer.name, "whole", 1, level, time_ms(layer, 1) * (1 + gbps * (U + V * own)), 0.01])
            rows.append([name, layer.name, "quarters", 1, level, time_ms(layer, 1) * LATE[level], 0.01])
    return made(rows, BACKGROUND)


def test_the_cpu_that_made_the_times_is_found(ideal):
    found = fit_cpu(ideal)
    assert [getattr(found, name) for name in CONSTANTS] == pytest.approx([getattr(TRUTH, name) for name in CONSTANTS],
                                                                         rel=0.01)
    rows = compared(ideal, TRUTH)
    assert all(abs(row["error"]) < 1e-6 and row["version"] == "whole" for row in rows)
    totals = {(row["network"], row["cores"]): row for row in by_network(rows)}
    for (name, cores), row in totals.items():
        whole_ms = sum(time_ms(layer, cores) for layer in networks(MEASURED_TOKENS)[name].layers)
        assert row["measured_ms"] == pytest.approx(whole_ms) and row["predicted_ms"] == pytest.approx(whole_ms)


def test_the_slowdown_that_made_the_times_is_found(ideal):
    """Only of the versions that it made: the other slows by as much for every layer."""
    proxy = fit_proxy(made([row for row in ideal.times if row.version == "whole"], BACKGROUND))
    assert proxy.weights == pytest.approx([U, V], rel=1e-6) and proxy.r_squared == pytest.approx(1)


def test_changing_versions_gains_where_another_is_faster(ideal):
    """Beside the full load the version that is fastest alone gives way where it slows by more than 50 %."""
    rows = {(row["cores"], row["level"]): row for row in by_level(ideal)}
    assert rows[1, 0]["slowdown"] == 1 and rows[1, 0]["gain"] == rows[1, 0]["changed"] == 0
    slower = [1 + 10 * (U + V * layer.bytes / time_ms(layer, 1) / 1e6)
              for _, layer in layers_of("resnet50", "bert-large")]
    assert rows[1, 1]["slowdown"] == pytest.approx(np.mean(slower))
    assert rows[1, 1]["changed"] == sum(one > 1.5 for one in slower) 
    assert 0 < rows[1, 1]["changed"] < len(slower)
    assert rows[1, 1]["gain"] == pytest.approx(np.mean([max(one / 1.5, 1) for one in slower]) - 1)
    assert (2, 1) not in rows and rows[1, 0.5]["fastest"] == {"whole": len(slower)}


def test_a_layer_without_all_its_versions_is_not_judged(ideal):
    """What is left of the versions is not the fastest."""
    fewer = made([row for row in ideal.times if row[:4] != ("resnet50", "fc", "whole", 2)], BACKGROUND)
    assert set(ideal.fastest) - set(fewer.fastest) == {("resnet50", "fc", 2, 0.0)}
    assert len(fewer.fastest_alone) == len(ideal.fastest_alone) - 1


def test_layers_get_the_effort_they_were_measured_to_take():
    """A layer twice as slow as the others have it takes twice the effort; ResNet-50's mean effort is 1."""
    names, slow = [name for name in networks() if name != "bert-large"], "conv4_1b"
    found = measured_networks(made([
        [name, layer.name, "whole", 1, 0.0, time_ms(layer, 1) * (1 + (name == "resnet50" and layer.name == slow)), 0.0]
        for name, layer in layers_of(*names)
    ]))
    reference = found["resnet50"]
    effort = {layer.name: layer.effort for layer in reference.layers}
    assert effort[slow] / np.median(list(effort.values())) == pytest.approx(2, rel=0.05)
    assert sum(layer.effort * layer.flops for layer in reference.layers) == pytest.approx(reference.flops)
    assert len({layer.effort for layer in found["bert-large"].layers}) == 1


@pytest.mark.parametrize("change, problem", [
    ({"times": []}, "times: "), ({"times": [["vgg", "fc", "whole", 1, 0.0, 1.0, 0.0]]}, "no network 'vgg' ships"),
    ({"times": [["resnet50", "fd", "whole", 1, 0.0, 1.0, 0.0]]}, "has no layer 'fd'"),
    ({"times": [["resnet50", "fc", "whole", 1, 0.0, 1.0, 0.0]] * 2}, "measured twice"),
    ({"times": [["resnet50", "fc", "whole", 1, level, 1.0, 0.0] for level in (0.0, 0.5)]}, "level 0.5 is missing"),
    ({"times": [["resnet50", "fc", "whole", 1, 0.5, 1.0, 0.0]]}, "no layer was measured alone"),
    ({"times": [["resnet50", "fc", "whole", 1, 0.0, float("nan"), 0.0]]}, "times[0]"), ({"kind": "times"}, "kind"),
    ({"machine": {"cpu": "x", "cores": 0, "torch": "2"}}, "machine.cores"),
])
def test_what_is_wrong_in_a_file_is_one_line(tmp_path, capsys, change, problem):
    content = {"version": 1, "kind": "layer-times", "machine": MACHINE,
               "times": [["resnet50", "fc", "whole", 1, 0.0, 1.0, 0.0]]}
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(content | change))
    assert main(["fit-layers", str(path)]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_files_round_trip_and_commands_read_them(tmp_path, capsys, ideal):
    for name in ("t.yaml", "t.json"):
        write(ideal, tmp_path / name)
        assert read_layer_times(tmp_path / name) == ideal
    assert main(["fit-layers", str(tmp_path / "t.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cpu"]["core_flops"] == pytest.approx(90e9, rel=0.01) and found["machine"]["cores"] == 4
    command = ["fit-layers", str(tmp_path / "t.yaml"), "--out", str(tmp_path / "t.csv")]
    assert main(command) == 0 and "GFLOP/s" in capsys.readouterr().out
    assert (tmp_path / "t.csv").read_text().startswith("network,layer,version,cores,measured_ms,predicted_ms,error\n")
    assert main(command) == 2 and "exists already" in capsys.readouterr().err
    assert main(["fit-layers", str(tmp_path / "none.yaml")]) == 2 and "no such file" in capsys.readouterr().err


def test_experiments_run_on_measured_efforts(tmp_path, capsys, ideal):
    """Layers that are as modelled change nothing; one that is slow beside the others needs more cores."""
    rows = [row._replace(median_ms=row.median_ms * (4 if (row.network, row.layer) == ("resnet50", "conv4_2b") else 1))
            for row in ideal.times]
    cores = []
    for number, times in enumerate([None, ideal, made(rows, BACKGROUND)]):
        path = str(tmp_path / f"{number}.json")
        if times:
            write(times, path)
        main(["veltair", "--figure", "10", "--json", *(["--measured", path] if times else [])])
        found = json.loads(capsys.readouterr().out)
        cores.append(found["figure_10"][1]["peak_cores"])
        assert found["measured"] == (path if times else None)
    assert cores[0] == cores[1] < cores[2]


def test_what_ships_can_be_used():
    for name in shipped_layer_times():
        times = read_layer_times(name)
        assert set(networks()) - {row.network for row in times.times} == {"efficientnet", "tiny-yolo-v2"}
        assert fit_cpu(times).core_flops > 1e9 and fit_proxy(times)


def test_settings_leave_the_background_a_core():
    assert settings([1, 2], [0.0, 1.0], 2) == [Setting(1, 0.0), Setting(2, 0.0), Setting(1, 1.0)]
    assert settings([1], [0.0, 1.0], 1) == [Setting(1, 0.0)]


@pytest.mark.parametrize("flags, problem", [
    (["vgg"], "network 'vgg'"), (["--cores", "0"], "--cores: should be at least 1"),
    (["--levels", "2"], "--levels: should be at most 1"),
    (["--levels", "0.5,nan"], "--levels: should be"), (["--seconds", "0"], "--seconds: should be above 0"),
])
def test_bad_flags_are_one_line(tmp_path, capsys, monkeypatch, flags, problem):
    monkeypatch.setattr(profile_layers, "measured_cpu", lambda: MeasuredCpu(**MACHINE))
    assert main(["profile-layers", *flags, "--out", str(tmp_path / "t.yaml")]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err and captured.err.count("\n") == 1 and not list(tmp_path.iterdir())


def test_without_pytorch_one_line(tmp_path, capsys, monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cpu, "version", absent)
    assert main(["profile-layers", "--out", str(tmp_path / "t.yaml")]) == 2
    captured = capsys.readouterr()
    assert "PyTorch is not installed; pip install" in captured.err and captured.err.count("\n") == 1


# Named as layers of a network that ships, so that files may hold them.
TINY = Network("resnet50", 1.0, "light", (
    conv("conv1", 8, 16, 32, 3, 2), depthwise("conv2_1a", 8, 32), dense("fc", 4, 64, 32),
    conv("conv2_1b", 8, 16, 32, 3, 2),
    Layer("conv2_1c", 8, 8, 16, 8 * 16, 4, weights=False),
))


@pytest.mark.parametrize("layer", TINY.layers, ids=lambda layer: layer.name)
def test_every_version_makes_all_outputs(layer):
    pytest.importorskip("torch")
    for version in versions_of(layer):
        assert sum(part.numel() for part in work(layer, version)()) == layer.batch * layer.m * layer.n


def test_a_tiny_network_is_measured():
    """Every shape once, in all its versions, alone and beside a load that does stream; by a process that can end."""
    pytest.importorskip("torch")
    usable, todo = cpu.usable_cores(), jobs([TINY])
    assert [layer.name for _, layer, version in todo if version == "whole"] == ["conv1", "conv2_1a", "fc", "conv2_1c"]
    for setting in settings([1], [0.0, 1.0], len(usable)):
        done = []
        rows, streaming = measure(todo, setting, usable, 1.0, 0.001, done.append)
        assert [(row.layer, row.version) for row in rows] == [(layer.name, version) for _, layer, version in todo]
        assert all(row.median_ms > 0 and row[3:5] == setting for row in rows) and sum(done) == len(todo)
        assert streaming is None if setting.level == 0 else streaming.gbps > 0


def test_a_process_that_ends_early_is_one_line():
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="ended early"):
        measure([("resnet50", Layer("fc", -1, 1, 1, 1), "whole")], Setting(1, 0.0), cpu.usable_cores(), 1.0, 0.001, len)


def test_the_command_measures_and_writes(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(profile_layers, "networks", lambda: {"resnet50": TINY})
    monkeypatch.setattr(profile_layers, "measured_cpu", lambda: MeasuredCpu(**MACHINE))
    command = ["profile-layers", "resnet50", "--cores", "1", "--levels", "0", "--seconds", "0.001"]
    assert main([*command, "--out", str(tmp_path / "t.yaml")]) == 0 and "GFLOP/s" in capsys.readouterr().out
    assert len(read_layer_times(tmp_path / "t.yaml").times) == len(jobs([TINY]))
    assert main([*command, "--out", str(tmp_path / "t.yaml")]) == 2 and "exists already" in capsys.readouterr().err
