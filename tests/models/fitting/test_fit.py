"""``provision fit``: the command, its tables, its files, and what it measures on ParvaGPU's profile."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from provision.cli import main
from provision.instances.files.csv_cells import csv_text
from provision.instances.importers.parvagpu_profiles import points_text, read_points, read_profiles
from provision.instances.read import read
from provision.models.fitting.families import FAMILIES
from provision.models.fitting.profile import fit_profile
from provision.models.performance.catalogue import load_performance
from provision.models.performance.gpulets import GpuletInterference
from provision.solving.solve import solve

SHARED = Path(__file__).resolve().parents[4] / "shared/data/parvagpu"
NEEDS_TABLES = pytest.mark.skipif(not SHARED.is_dir(), reason="ParvaGPU's tables are not in shared/")

HEADER = "Mig instance,Batch size,Workload Number,Throughput,Latency\n"
SIZES = {1: 9.5, 2: 19.5, 3: 39.25, 4: 39.25, 7: 79.0}
"""Memory (GiB) of A100-80GB slices by size."""

NETWORKS = {name: model.coefficients for name, model in load_performance("parvagpu-a100").models.items()}


def table(network, batches=(1, 4, 16, 64), counts=(1, 2, 4)):
    """A profile table of what a network does, zeros out of memory."""
    lines = [HEADER]
    for size, memory_gib in SIZES.items():
        for batch in batches:
            for count in counts:
                latency_s = network.batch_latency_ms(batch, count, size) / 1000
                fits = network.memory_gib(batch, count) <= memory_gib
                row = (f"{batch / latency_s:.6g}", f"{latency_s:.3f}") if fits else ("0", "0")
                lines.append(f"{size},{batch},{count},{row[0]},{row[1]}\n")
    return "".join(lines)


@pytest.fixture
def folder(tmp_path):
    """Two DNNs of a kind that the shipped networks know, under names that they do not."""
    tables = tmp_path / "tables"
    tables.mkdir()
    for name, known in (("one", "resnet50"), ("two", "vgg16")):
        (tables / f"{name}.csv").write_text(table(NETWORKS[known]))
    return tables


def run(capsys, *arguments):
    """Exit code, stdout and stderr of ``provision fit``."""
    code = main(["fit", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def summary(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0 and all(line.startswith("warning: ") for line in err.splitlines())
    return json.loads(out)


def test_all_points_are_fitted_and_judged_in_sample(capsys, folder):
    found = summary(capsys, folder)
    assert found["in_sample"] and set(found["models"]) == {"one", "two"}
    counts = [found["models"][name]["points_fitted"] for name in ("one", "two")]
    assert found["overall"]["points_fitted"] == found["overall"]["points_judged"] == sum(counts)
    assert found["overall"]["mean_error"] < 0.005
    keys = {"mean_error", "p95_error", "max_error", "points_fitted", "points_judged"}
    assert all(set(one) == keys for one in (found["overall"], *found["models"].values()))
    code, out, err = run(capsys, folder)
    assert (code, err) == (0, "") and "in-sample" in out


def test_own_tables_of_slices_are_fitted_like_parvagpus(capsys, folder, tmp_path):
    """The columns of ``import csv``, slices by their profiles, all models in one file; three points are told of."""
    profiles = read_profiles(folder)
    rows = [(name, *key, ms) for name, (keys, points) in profiles.items()
            for key, ms in zip(keys, points.latency_ms.tolist(), strict=True) if ms == ms]
    own = tmp_path / "own.csv"
    own.write_text(csv_text(("model", "profile", "batch", "processes", "latency_ms"), rows))
    assert "1g.10gb" in own.read_text()
    found, expected = summary(capsys, own), summary(capsys, folder)
    assert found["models"].keys() == expected["models"].keys()
    assert found["overall"] == pytest.approx(expected["overall"])
    own.write_text("profile,batch,latency_ms\n1g.10gb,1,8\n1g.10gb,4,22\n2g.20gb,4,14\n")
    assert_refused(run(capsys, own), "own: 3 measured points to fit; .*`provision import csv --complete`")


@pytest.mark.parametrize("family", FAMILIES)
def test_points_of_the_rule_are_fitted_and_the_others_judged(capsys, folder, family):
    found = summary(capsys, folder, "--model", family, "--points", 14)
    profiles = read_profiles(folder)
    assert not found["in_sample"] and found["overall"]["points_fitted"] == 28
    for name, one in found["models"].items():
        assert one["points_fitted"] == len(found["fitted"][name]) == 14
        assert one["points_judged"] == profiles[name].points.measured.sum() - 14
        assert 0 <= one["mean_error"] <= one["p95_error"] <= one["max_error"]


@pytest.mark.parametrize("family", FAMILIES)
def test_listed_points_are_fitted_and_only_these(capsys, folder, tmp_path, family):
    listed = tmp_path / "points.csv"
    first = summary(capsys, folder / "one.csv", "--model", family, "--points", 14)
    listed.write_text(points_text(2 * first["fitted"]["one"]))
    again = summary(capsys, folder / "one.csv", "--model", family, "--points-file", listed)
    assert again == first


def test_errors_are_those_of_the_points_that_were_not_fitted(folder):
    profile = read_profiles(folder)["one"]
    spoiled = profile.points._replace(latency_ms=profile.points.latency_ms.copy())
    some = [at for at, key in enumerate(profile.keys) if key[1] != 16]
    at = profile.keys.index(("7g.80gb", 16, 1))
    spoiled.latency_ms[at] *= 2
    before, after = (fit_profile("one", points, "table", some) for points in (profile.points, spoiled))
    place = list(after.judged).index(at)
    assert np.array_equal(before.predicted_ms, after.predicted_ms)
    assert after.errors[place] == pytest.approx(1 - before.predicted_ms[place] / spoiled.latency_ms[at])


def test_points_files_take_sizes_and_names_with_and_without_header(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("profile,batch,processes\n1g.10gb,8,2\n\n7, 16, 1\n")
    assert read_points(path) == [("1g.10gb", 8, 2), ("7g.80gb", 16, 1)]
    path.write_text("3,8,2")
    assert read_points(path) == [("3g.40gb", 8, 2)]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("5,8,2", "no MIG profile '5'; use one of 1 "),
        ("9g.90gb,8,2", "no MIG profile '9g.90gb'"),
        ("1,8", "write a line like"),
        ("1,eight,2", "batch 'eight' is not a number"),
        ("1,0,2", "batch 0 must be a whole number above 0"),
        ("1,8,1.5", "processes 1.5 must be a whole"),
        ("1,8,nan", "processes 'nan' must be finite"),
        ("profile,batch,processes", "has no points"),
        ("1,3,1", "no table of .* has a row for 1g.10gb, batch 3, 1 processes"),
        ("1,1,1\n1,4,1", "2 measured points to fit; give at least 5"),
    ],
)
def test_bad_points_files_are_one_line(capsys, folder, tmp_path, text, problem):
    path = tmp_path / "points.csv"
    path.write_text(text)
    assert_refused(run(capsys, folder, "--points-file", path), problem)


def assert_refused(outcome, problem):
    code, out, err = outcome
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith("error: ")
    assert re.search(problem, err), err


ROWS = table(NETWORKS["resnet50"]).splitlines(keepends=True)[1:]
FIRST = ROWS[0].rsplit(",", 1)[0]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "has no rows|is missing"),
        (HEADER, "has no rows"),
        (HEADER.replace("Throughput", "Speed") + ROWS[0], "column 'Throughput' is missing"),
        (HEADER + "1,1,1,0,0\n2,1,1,0,0\n", "no row has a throughput above 0"),
        (HEADER + ROWS[0], "1 measured points to fit; give at least 5"),
        (HEADER + FIRST + ",nan\n", "Latency 'nan' must be finite"),
        (HEADER + FIRST + ",-0.01\n", "Latency '-0.01' must be finite and not negative"),
        (HEADER + FIRST + ",11.5\n", "does not go with Latency 11.5; give requests/s of one process and seconds"),
        (HEADER + FIRST + ",0\n", "does not go with Latency 0"),
        (HEADER + "1,1,1,0,0.01\n", "does not go with Latency 0.01"),
        (HEADER + FIRST + "\n", "Latency None is not a number"),
        (HEADER + "6,1,1,50,0.02\n", "no MIG profile '6'"),
        (HEADER + "1,0,1,50,0.02\n", "batch 0 must be a whole number above 0"),
        (HEADER + ROWS[0] + ROWS[0], "stand in there twice"),
        ("\x00", "not a text file"),
    ],
)
def test_bad_tables_are_one_line(capsys, tmp_path, text, problem):
    path = tmp_path / "dnn.csv"
    path.write_text(text)
    outcome = run(capsys, path)
    assert_refused(outcome, problem)
    assert str(path) in outcome[2] or "dnn: 1 measured" in outcome[2]


def test_a_latency_column_in_milliseconds_is_noticed(capsys, tmp_path):
    rows = [row.split(",") for row in ROWS]
    lines = [",".join([*row[:4], f"{1000 * float(row[4]):g}\n"]) for row in rows]
    (tmp_path / "dnn.csv").write_text(HEADER + "".join(lines))
    assert_refused(run(capsys, tmp_path), "dnn.csv:2: .* and seconds")


def test_the_throughput_of_all_processes_is_noticed(capsys, tmp_path):
    rows = [row.split(",") for row in ROWS]
    lines = [",".join([*row[:3], f"{int(row[2]) * float(row[3]):g}", row[4]]) for row in rows if row[2] in "12"]
    (tmp_path / "dnn.csv").write_text(HEADER + "".join(lines))
    assert_refused(run(capsys, tmp_path), "dnn.csv:3: .* of one process")


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ([], "name the DIR"),
        (["nowhere"], r"nowhere: no \*.csv"),
        (["{folder}", "--points", "3"], "one: 3 points cannot be fitted"),
        (["{folder}", "--points", "1000"], "one: 1000 points cannot be fitted"),
        (["{folder}", "--png", "plot.pdf"], "end the name in .png"),
        (["{folder}", "--model", "lwr", "--out", "f.yaml"], "lwr has no file to write: .* closed-network or table"),
        (["{folder}", "--model", "igniter", "--out", "f.yaml"], "igniter has no file to write: .*power"),
        (["{folder}", "--out", "{folder}/one.csv"], "exists already"),
        (["{folder}", "--out", "f.png", "--png", "f.png"], "give each a name of its own"),
        (["{folder}", "--propose", "9", "--png", "f.png"], "goes without"),
        (["{folder}", "--propose", "9", "--out", "f.csv"], "is for closed networks and prints"),
        (["{folder}", "--propose", "1000"], "--propose 1000: choose from 1 to"),
        (["--propose", "2"], "--propose 2: choose from 3"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(capsys, folder, arguments, problem):
    assert_refused(run(capsys, *(one.format(folder=folder) for one in arguments)), problem)


def test_a_proposal_is_a_points_file(capsys, tmp_path):
    code, out, err = run(capsys, "--propose", 16)
    assert (code, err) == (0, "") and out.startswith("profile,batch,processes\n")
    path = tmp_path / "points.csv"
    assert run(capsys, "--propose", 16, "--out", path)[0] == 0 and path.read_text() == out
    points = summary(capsys, "--propose", 16)["points"]
    assert len(points) == 16 and read_points(path) == [tuple(point) for point in points]


def test_of_what_was_measured_further_points_are_proposed(capsys, folder):
    found = summary(capsys, folder, "--propose", 3)["points"]["one"]
    measured = read_profiles(folder)["one"].keys
    assert len(found) == 3 and not {tuple(key) for key in found} & set(measured)
    code, out, err = run(capsys, folder, "--propose", 1)
    assert (code, err) == (0, "") and all(str(cell) in out for cell in ["one", *found[0]])


def service(path, model):
    """An instance that serves one DNN by a performance file."""
    return {
        "version": 1,
        "name": "service",
        "fleet": [{"gpu": "a100-80gb"}],
        "performance": [str(path)],
        "workloads": [{"name": "w", "model": model, "slo_ms": 400.0, "rate_rps": 900.0}],
    }


@pytest.mark.parametrize("family, points", [("closed-network", 14), ("closed-network", None), ("table", None)])
def test_written_performance_data_serves_instances(capsys, folder, tmp_path, family, points):
    out = tmp_path / "measured.yaml"
    few = [] if points is None else ["--points", points]
    found = summary(capsys, folder, "--model", family, "--out", out, *few)
    content = yaml.safe_load(out.read_text())
    assert found["out"] == str(out) and content["name"] == "measured" and str(tmp_path) not in content["source"]
    if family == "closed-network":
        assert content["models"]["one"]["error"]["points"] == found["models"]["one"]["points_judged"]
        assert ("held out" if points else "in-sample") in content["source"]
    instance = tmp_path / "service.yaml"
    instance.write_text(yaml.safe_dump(service(out, "one")))
    result = solve(read(instance), "greedy")
    assert result.verified and len(result.plan.gpus) >= 1


def test_a_picture_is_written_once(capsys, folder, tmp_path):
    path = tmp_path / "fit.png"
    assert run(capsys, folder, "--png", path, "--points", 14)[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert_refused(run(capsys, folder, "--png", path), "exists already")
    assert run(capsys, folder, "--png", path, "--force")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.png", "tables"]


PAIR_COLUMNS = "l2_util_m1,l2_util_m2,dram_util_m1,dram_util_m2,slowdown\n"


def pairs(count, unit=1):
    """Measured pairs of known interference."""
    used = np.random.default_rng(0).uniform(0, 1, (4, count))
    known = GpuletInterference(l2_own=0.11, l2_other=0.72, dram_own=0.35, dram_other=0.09, constant=0.9)
    rows = np.vstack([unit * used, known.slowdown(*used)]).T
    return PAIR_COLUMNS + "".join(",".join(f"{cell:.9g}" for cell in row) + "\n" for row in rows)


def test_interference_is_fitted_to_some_pairs_and_judged_on_the_others(capsys, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text(pairs(100))
    found = summary(capsys, path, "--format", "gpulets")
    expected = {"l2_own": 0.11, "l2_other": 0.72, "dram_own": 0.35, "dram_other": 0.09, "constant": 0.9}
    assert found["coefficients"] == pytest.approx(expected, abs=1e-3)
    assert (found["overall"]["points_fitted"], found["overall"]["points_judged"]) == (70, 30)
    assert found["overall"]["max_error"] < 1e-3
    code, out, err = run(capsys, path, "--format", "gpulets")
    assert (code, err) == (0, "") and "on the 30 pairs of 100 that were not fitted" in out


@pytest.mark.parametrize(
    "text, arguments, problem",
    [
        (pairs(100, unit=100), [], "pairs.csv:2: l2_util_m1 '.*' is above 1; write a fraction"),
        (pairs(9), [], "9 pairs; give at least 10"),
        (PAIR_COLUMNS + "0.1,0.1,0.1,0.1,1.2\n" * 20, [], "do not tell five coefficients apart"),
        (PAIR_COLUMNS + "0.1,0.1,0.1,0.1,0\n", [], "slowdown 0 is none"),
        (pairs(20).replace("slowdown", "factor"), [], "column 'slowdown' is missing"),
        (pairs(20), ["--points", "8"], "--points is for profile tables"),
        (pairs(20), ["--propose", "8"], "--propose is for profile tables"),
    ],
)
def test_bad_pairs_are_one_line(capsys, tmp_path, text, arguments, problem):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    assert_refused(run(capsys, path, "--format", "gpulets", *arguments), problem)


@NEEDS_TABLES
def test_parvagpus_tables_are_read_from_their_folder_and_from_above(capsys):
    above, inside = (summary(capsys, folder)["overall"] for folder in (SHARED, SHARED / "prof_data"))
    assert above == inside and above["points_fitted"] == 1747
    assert above["mean_error"] <= 0.035 and above["p95_error"] <= 0.10


@NEEDS_TABLES
def test_sixteen_points_of_our_rule_predict_parvagpus_tables(capsys):
    overall = summary(capsys, SHARED, "--points", 16)["overall"]
    assert (overall["points_fitted"], overall["points_judged"]) == (176, 1571)
    assert overall["mean_error"] <= 0.05 and overall["p95_error"] <= 0.15


def test_tables_may_name_profiles_of_any_gpu_type(tmp_path, capsys):
    """Slices named by their profile, on another GPU type, and proposals for it."""
    rows = [f"{profile},{batch},1,{batch * 1000 / (2 + batch / size)},{(2 + batch / size) / 1000}"
            for profile, size in (("1g.10gb", 1), ("4g.40gb", 4), ("7g.80gb", 7)) for batch in (1, 4, 16, 64)]
    (tmp_path / "one.csv").write_text("\n".join(["Mig instance,Batch size,Workload Number,Throughput,Latency", *rows]))
    out = tmp_path / "one.yaml"
    assert main(["fit", str(tmp_path), "--gpu", "h100-80gb", "--out", str(out)]) == 0
    assert "gpu: h100-80gb" in out.read_text()
    assert main(["fit", str(tmp_path), "--gpu", "a30"]) == 2
    assert "a30 has no MIG profile '1g.10gb'" in capsys.readouterr().err
