"""Measuring callables off the GPU, and what is said where there is none."""

import csv
from types import SimpleNamespace

import pytest

from provision.cli import main
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_types
from provision.models.performance.operating_points import Member
from provision.profiling.measure import COLUMNS, Measured, Point, measure, row, segments
from provision.profiling.work import Device, profile_of

SLEEPER = "profiled_work:sleeper"


def test_a_sleeper_takes_its_time():
    """Sleeping is never shorter than asked: 8 ms a batch of 4, so at most 500 requests/s a process."""
    alone = measure(Point(SLEEPER, 4), "cpu", 0.3)
    assert 8 <= alone.latency_ms < 40 and 100 < alone.throughput_rps <= 500 and alone.gpu_ms is None
    three = measure(Point(SLEEPER, 4, 2, (SLEEPER, 1)), "cpu", 0.3)
    assert alone.throughput_rps < three.throughput_rps <= 1000


def test_out_of_memory_is_a_point_that_does_not_exist():
    assert measure(Point("profiled_work:out_of_memory", 4, 2), "cpu", 0.1) is None
    assert measure(Point(SLEEPER, 1, 1, ("profiled_work:out_of_memory", 4)), "cpu", 0.1) is None


@pytest.mark.parametrize("model, problem", [
    ("profiled_work:nothing", "cannot be loaded"), ("no_such_module:f", "cannot be loaded"), ("resnet", "write"),
    ("profiled_work:broken", "wrong shape"), ("profiled_work:deadly", "ended before its time"),
])
def test_what_goes_wrong_in_a_process_is_one_line(model, problem):
    with pytest.raises(InputError, match=problem):
        measure(Point(model, 1), "cpu", 0.1)


def test_tables_hold_what_ran_alone_with_all_sms():
    found = Measured(5.0, 4.0, 200.0, 10)
    mig, share = Device("a100-80gb", "1g.10gb"), Device("a100-80gb", "1g.10gb", 50.0)
    rows = [row(mig, Point("torchvision:vgg19", 1), found), row(mig, Point("torchvision:vgg19", 2), None),
            row(share, Point("torchvision:vgg19", 4), found), row(mig, Point("x:y", 8, 1, ("x:y", 1)), found)]
    table = segments(rows, "t", "measured")
    assert list(table.models) == ["vgg19"] and len(table.models["vgg19"].points) == 1
    assert table.predict("1g.10gb", [Member("vgg19", 1, 1, 1.0)])[0].throughput_rps == 200
    with pytest.raises(InputError, match="nothing was measured alone"):
        segments(rows[1:], "t", "measured")


def test_the_command_off_the_gpu(tmp_path, capsys):
    out = tmp_path / "m.csv"
    flags = ["--device", "cpu", "--seconds", "0.1", "--out", str(out)]
    assert main(["profile", SLEEPER, "--batches", "1,2", *flags]) == 0
    with open(out) as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS and [one["batch"] for one in rows] == ["1", "2"]
    assert "latency_ms" in capsys.readouterr().out
    assert main(["profile", SLEEPER, *flags]) == 2 and "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("flags, problem", [
    (["--batches", "0"], "--batches: should"), (["--processes", "x"], "--processes: should"),
    (["--seconds", "0"], "--seconds"),
    (["--beside", "vgg:x"], "--beside"), (["--device", "cpu", "--table", "t.yaml"], "--table"), ([], "no NVIDIA GPU"),
    (["--table", "m.csv"], "give each a name of its own"),
])
def test_bad_flags_and_no_gpu_are_one_line(tmp_path, capsys, monkeypatch, flags, problem):
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "torchvision:resnet50", *flags, "--out", "m.csv"]) == 2
    captured = capsys.readouterr()
    assert problem in captured.err and captured.err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, value", [
    ("CUDA_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "-1"), ("CUDA_VISIBLE_DEVICES", "first"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "nan"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "0"),
    ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "101"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "half"),
])
def test_an_environment_that_names_no_device_is_one_line(tmp_path, capsys, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    assert main(["profile", "torchvision:resnet50", "--out", "m.csv"]) == 2
    captured = capsys.readouterr()
    assert f"{name}={value}: should" in captured.err and captured.err.count("\n") == 1


def test_slices_are_known_by_their_compute_and_memory():
    for kind in gpu_types().values():
        for profile in kind.profiles.values():
            held = SimpleNamespace(gpuInstanceSliceCount=profile.compute, multiprocessorCount=profile.sms,
                                   memorySizeMB=round(1024 * profile.memory_gib) - 100)
            assert profile_of(kind, held) == profile.name.removesuffix("+me")
        with pytest.raises(InputError, match="3 compute slices and 1 SMs"):
            profile_of(kind, SimpleNamespace(gpuInstanceSliceCount=3, multiprocessorCount=1, memorySizeMB=1))
