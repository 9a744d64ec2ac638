"""The command line: what each verb prints, writes and returns."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import provision
from provision import cli
from provision.cli import main
from provision.instances.read import generate, read, read_plan, shipped_instances
from provision.models.problem.workload import FleetEntry
from provision.solving.methods import methods

ARTEFACT = Path(__file__).resolve().parents[4] / "shared/data/parvagpu"
needs_artefact = pytest.mark.skipif(not ARTEFACT.is_dir(), reason=f"ParvaGPU's public data is not at {ARTEFACT}")
SOLVE_KEYS = {
    "replay",
    "notes",
    "instance",
    "digest",
    "method",
    "parameters",
    "seed",
    "status",
    "termination",
    "reason",
    "objective",
    "bound",
    "gap",
    "gpus",
    "gpcs",
    "cost_per_hour",
    "build_seconds",
    "solve_seconds",
    "verified",
    "plan_file",
    "margins",
    "versions",
}
VIOLATION_KEYS = {"kind", "gpu", "slice", "workload", "value", "limit", "message"}
SIZES = {
    "a100-80gb": ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "a30": ("1g.6gb", "2g.12gb", "4g.24gb"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Every test works in a fresh folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys):
    """Run a command line; returns exit code, stdout and stderr."""

    def command(line):
        try:
            code = main(line.split())
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def answer(run):
    """Run a command line with ``--json``; returns exit code and the one JSON object on stdout."""

    def command(line):
        code, out, err = run(f"{line} --json")
        assert err == ""
        return code, json.loads(out)

    return command


def changed_plan(path, change):
    """Rewrite a JSON plan after a function has changed its content."""
    content = json.loads(Path(path).read_text())
    change(content)
    Path(path).write_text(json.dumps(content))


def test_solve_json(answer):
    """``solve --json`` prints one object with exactly the agreed keys, exit 0."""
    code, found = answer("solve parvagpu-s1 --out plan.json")
    assert code == 0
    assert set(found) == SOLVE_KEYS
    assert found["instance"] == "parvagpu-s1" and found["digest"] == read("parvagpu-s1").digest
    assert (found["status"], found["termination"], found["gap"]) == ("optimal", "proved", 0)
    assert found["gpus"] == 2 and found["verified"] is True and found["plan_file"] == "plan.json"


def test_solve_json_without_a_plan(answer):
    """An instance that cannot be met has the same keys, exit 1 and no plan file, although one was asked for."""
    hopeless = read("parvagpu-s1").model_dump(mode="json")
    hopeless["workloads"][0]["slo_ms"] = 0.1
    Path("hopeless.json").write_text(json.dumps(hopeless))
    code, found = answer("solve hopeless.json --out plan.json")
    assert code == 1
    assert set(found) == SOLVE_KEYS
    assert found["status"] == "infeasible" and found["plan_file"] is None and not Path("plan.json").exists()


def test_solve_text(run):
    """``solve`` says on stdout what the plan takes, what is proven, what to know, every SLO, and where the file is."""
    code, out, err = run("solve parvagpu-s1 --out plan.yaml")
    assert code == 0 and err == ""
    first, *rest = out.splitlines()
    assert first == "parvagpu-s1: 2 GPUs, 10.24 $ per hour (7,475 $ per month). Proven: no plan costs less."
    assert rest[0] == "The weakest workload is densenet121: it breaks at +86.5% traffic or +13.0% service time."
    assert rest[1].startswith("Note: latency_budget half_slo is about batches")
    marks = [line for line in rest if line.startswith("✓ ")]
    assert len(marks) == len(read("parvagpu-s1").workloads)
    assert all(line.rstrip().endswith(" ms") and " of " in line for line in marks)
    assert rest[-1] == "Plan written to plan.yaml."
    assert not {"GPCs", "internal slack", "external fragmentation"} & set(out.split())


def test_solve_tells_of_a_gpu_type_without_data(run):
    """What stays unused is said on the terminal too."""
    fields = read("parvagpu-s1").model_dump(mode="json")
    fields["fleet"].append({"gpu": "l40s", "price_per_hour": 1.0})
    Path("more.json").write_text(json.dumps(fields))
    _, out, _ = run("solve more.json")
    assert "Note: fleet[1]: l40s stays unused" in out


def test_same_seed_same_answer(run):
    """The same command writes the same plan, byte for byte."""
    run("solve parvagpu-s2 --seed 3 --out one.json")
    run("solve parvagpu-s2 --seed 3 --out two.json")
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


@pytest.mark.parametrize("name", ["plan.json", "plan.yaml", "deep/er/plan"])
def test_plan_written_and_read_back(name, run, answer):
    """A written plan reads back, belongs to its instance and holds."""
    run(f"solve parvagpu-s3 --out {name}")
    assert read_plan(name).digest == read("parvagpu-s3").digest
    code, report = answer(f"verify parvagpu-s3 {name}")
    assert code == 0 and report["ok"] is True and report["violations"] == [] and len(report["predictions"]) > 0


def test_verify_json_of_a_broken_plan(run, answer):
    """``verify --json`` of a plan that does not hold lists the violations with exactly the agreed keys, exit 1."""
    run("solve parvagpu-s1 --out plan.json")
    changed_plan("plan.json", lambda plan: plan["gpus"].pop())
    code, report = answer("verify parvagpu-s1 plan.json")
    assert code == 1 and report["ok"] is False
    assert all(set(one) == VIOLATION_KEYS for one in report["violations"])
    assert {one["kind"] for one in report["violations"]} == {"rate"}


def test_verify_text(run):
    """``verify`` in words: exit 0 and "holds", or exit 1 and every violation, and a note for another instance."""
    run("solve parvagpu-s1 --out plan.json")
    code, out, _ = run("verify parvagpu-s1 plan.json")
    assert code == 0 and "holds" in out
    code, out, _ = run("verify parvagpu-s6 plan.json")
    assert code == 1 and "violated" in out and "made for parvagpu-s1; it is judged on parvagpu-s6" in out


def test_out_refuses_to_overwrite(run):
    """``--out`` leaves a file that exists as it is, unless ``--force`` is given."""
    Path("plan.json").write_text("mine")
    code, out, err = run("solve parvagpu-s1 --out plan.json")
    assert code == 2 and out == "" and "--force" in err
    assert Path("plan.json").read_text() == "mine"
    assert run("solve parvagpu-s1 --out plan.json --force")[0] == 0
    assert read_plan("plan.json").instance == "parvagpu-s1"
    assert [path.name for path in Path().iterdir()] == ["plan.json"]


def test_compare_has_a_row_per_method(run):
    """``compare`` prints a row per method, and for one that does not apply a line with the remedy in place of it."""
    spread = read("parvagpu-s1").model_dump(mode="json")
    spread["workloads"][0]["max_share_per_gpu"] = 0.5
    Path("spread.json").write_text(json.dumps(spread))
    code, out, err = run("compare spread.json --methods greedy,parvagpu,master")
    assert code == 0 and err == ""
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert {"greedy", "parvagpu:", "master"} <= set(rows) and "parvagpu" not in rows
    assert "parvagpu: method parvagpu cannot plan max_share_per_gpu below 1; use --method" in out
    code, out, _ = run("compare spread.json --methods greedy,parvagpu --json")
    assert [row["status"] for row in json.loads(out)] == ["optimal", "not applicable"]


def test_compare_all(answer):
    """``compare`` without ``--methods`` has all of them, and no plan below a proven bound."""
    code, rows = answer("compare parvagpu-s1 --time-limit 3")
    assert code == 0
    assert [row["method"] for row in rows] == list(methods())
    bound = max(row["bound"] for row in rows if row["bound"] is not None)
    assert all(row["objective"] >= bound for row in rows if row.get("objective") is not None)


def test_lists(answer, run):
    """``instances``, ``methods`` and ``gpus`` list what there is, in words and as JSON."""
    names = {verb: [row["name"] for row in answer(verb)[1]] for verb in ("instances", "methods", "gpus")}
    assert tuple(names["instances"]) == shipped_instances() and names["methods"] == list(methods())
    assert "a100-80gb" in names["gpus"]
    for verb, listed in names.items():
        code, out, err = run(verb)
        assert code == 0 and err == "" and all(name in out for name in listed)


def test_schema(run):
    """``schema`` prints the JSON Schema of a kind of file, and refuses other kinds."""
    code, out, _ = run("schema plan")
    assert code == 0 and json.loads(out)["$id"] == "urn:provision:plan:1"
    assert run("schema novel")[0] == 2


def test_show(run):
    """``show`` draws every GPU, writes picture and page, and overwrites neither."""
    run("solve parvagpu-s1 --out plan.json")
    line = "show plan.json --png plan.png --html plan.html"
    code, out, err = run(line)
    assert code == 0 and "bert" in out
    assert "plan.png" in err and "plan.html" in err
    assert Path("plan.png").read_bytes().startswith(b"\x89PNG") and "<html" in Path("plan.html").read_text()
    assert run(line)[0] == 2


def made_up_artefact():
    """The folders of ParvaGPU's artefact for two models, made up."""
    header = "Mig instance,Batch size,Workload Number,Throughput,Latency"
    small = [
        f"{size},{batch},1,{size * batch * 9},{0.1 / size}" for size in (1, 2, 3, 4, 7) for batch in (1, 2, 4)
    ]
    for name in ("alpha", "beta"):
        path = Path(f"data/prof_data/{name}.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([header, *small, "1,8,1,0,0"]) + "\n")
    Path("data/SLO").mkdir()
    Path("data/SLO/SLO_latency.csv").write_text("250.9,N/A\n250.9,300\n")
    Path("data/SLO/SLO_req_rate.csv").write_text("20,N/A\n20,60\n")


def test_import_of_made_up_tables(run, answer):
    """Imported tables keep every measured row but zeros, latencies in ms, throughput of all processes."""
    made_up_artefact()
    assert run("import parvagpu data --out tables.yaml")[0] == 0
    tables = yaml.safe_load(Path("tables.yaml").read_text())
    assert set(tables["models"]) == {"alpha", "beta"}
    points = tables["models"]["alpha"]["points"]
    assert len(points) == 15 and points[0] == ["1g.10gb", 1, 1, 9.0, 100.0]


def test_import_of_a_made_up_scenario(run, answer):
    """An imported scenario has its row's workloads, SLOs cut to whole ms, and can be solved and verified."""
    made_up_artefact()
    assert run("import parvagpu data --slo-row 1 --safety 0.9 --price 5 --out one.json")[0] == 0
    (only,) = read("one.json").workloads
    assert (only.name, only.slo_ms, only.rate_rps) == ("alpha", 250.0, 20.0)
    assert run("import parvagpu data --slo-row 2 --out two.yaml")[0] == 0
    assert [one.name for one in read("two.yaml").workloads] == ["alpha", "beta"]
    code, found = answer("solve two.yaml --out plan.yaml")
    assert code == 0 and found["gpus"] == 1
    assert run("verify two.yaml plan.yaml")[0] == 0
    assert run("import parvagpu data --slo-row 2 --out two.yaml")[0] == 2


def write_map(rows):
    """A deployment map of GPU 0, rows of model, placement, size, batch and processes; its instance is two.yaml."""
    made_up_artefact()
    main(["import", "parvagpu", "data", "--slo-row", "2", "--out", "two.yaml"])
    lines = [f"0,{gpu},{model},{start},{size},4,1" for gpu, model, start, size in rows]
    header = "Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc"
    Path("map.csv").write_text("\n".join([header, *lines]) + "\n")


def test_import_of_a_deployment_map(run, answer):
    """A map becomes a plan whose rates follow throughput, however its rows are ordered, and which holds."""
    write_map([(0, "alpha", 0, 1), (1, "beta", 0, 3), (0, "beta", 2, 2), (1, "alpha", 4, 3)])
    code, out, _ = run("import parvagpu-deployment map.csv --instance two.yaml --out plan.json")
    assert code == 0 and "written to plan.json" in out
    routed = {(at, one.workload): one.rate_rps for at, _, _, one in read_plan("plan.json").replicas()}
    assert routed == pytest.approx({(0, "alpha"): 5, (1, "alpha"): 15, (1, "beta"): 36, (0, "beta"): 24})
    code, report = answer("verify two.yaml plan.json")
    assert code == 0 and report["violations"] == []


OVERLAPS = {
    "3 at 4 under 1 at 6": ([(0, "alpha", 4, 3), (0, "beta", 6, 1)], {"overlap": "memory slices 6"}),
    "2 at 0 under 1 at 1": ([(0, "alpha", 0, 2), (0, "beta", 1, 1)], {"overlap": "memory slices 1"}),
    "4 at 0 under 2 at 2": ([(0, "alpha", 0, 4), (0, "beta", 2, 2)], {"overlap": "memory slices 2, 3"}),
    "3 at 1": ([(0, "alpha", 1, 3), (0, "beta", 6, 1)], {"start": "cannot start at memory slice 1"}),
    "5 at 0": ([(0, "alpha", 0, 5), (0, "beta", 6, 1)], {"profile": "no MIG profile '5g'"}),
}


@pytest.mark.parametrize(("rows", "expected"), OVERLAPS.values(), ids=OVERLAPS.keys())
def test_a_wrong_deployment_map_is_imported_and_rejected(rows, expected, run, answer):
    """A map that no GPU can hold is imported as it stands, and ``verify`` names the slots that are wrong."""
    write_map(rows)
    assert run("import parvagpu-deployment map.csv --instance two.yaml --out plan.json")[0] == 0
    code, report = answer("verify two.yaml plan.json")
    assert code == 1
    for kind, words in expected.items():
        (found,) = [one for one in report["violations"] if one["kind"] == kind]
        assert found["gpu"] == 0 and words in found["message"]


@needs_artefact
def test_import_of_the_public_tables(run):
    """The public profile tables give the eleven models with every measured row above 0."""
    assert run(f"import parvagpu {ARTEFACT} --out tables.json")[0] == 0
    models = json.loads(Path("tables.json").read_text())["models"]
    assert len(models) == 11
    assert ["1g.10gb", 1, 1, 74.408, 13.0] in models["bert"]["points"]


@needs_artefact
@pytest.mark.parametrize("row", range(1, 7))
def test_import_of_the_public_scenarios(row, run):
    """Row n of the public tables is shipped scenario n, SLOs cut where the paper rounds, and can be planned."""
    assert run(f"import parvagpu {ARTEFACT} --slo-row {row} --safety 0.9 --out s.json")[0] == 0
    imported, shipped = read("s.json"), read(f"parvagpu-s{row}")
    assert [(one.name, one.rate_rps) for one in imported.workloads] == [
        (one.name, one.rate_rps) for one in shipped.workloads
    ]
    for one, other in zip(imported.workloads, shipped.workloads, strict=True):
        assert other.slo_ms - 1 <= one.slo_ms <= other.slo_ms
    assert run("solve s.json --out p.json")[0] == 0
    assert run("verify s.json p.json")[0] == 0


def hard_instance():
    """Many workloads with SLOs of their own that share GPUs of two types: no search proves the optimum."""
    base, draw = generate(150, 0), random.Random(1)
    several = [one.model_copy(update={"max_replicas": None, "slo_ms": one.slo_ms * draw.uniform(1, 1.5)})
               for one in base.workloads]
    fleet = FleetEntry(gpu="v100", price_per_hour=3.06), FleetEntry(gpu="t4", price_per_hour=0.53)
    return base.replace(name="hard", workloads=several, fleet=fleet, performance=["igniter-v100", "igniter-t4-derived"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_answer_does_not_change_the_exit_code(name):
    """Python gives its end the default handlers, with which a signal ends the process."""
    late = f"import atexit, signal, sys; signal.signal(signal.{name}, signal.SIG_DFL)\n" \
           f"atexit.register(signal.raise_signal, signal.{name})\nfrom provision.cli import main; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", late, "solve", "parvagpu-s1", "--method", "greedy", "--json"],
                         capture_output=True, text=True)
    assert ran.returncode == 0 and json.loads(ran.stdout)["verified"] and not ran.stderr


def test_a_signal_while_modules_are_loaded_ends_that(monkeypatch, capsys):
    def loads(*given):
        signal.raise_signal(signal.SIGTERM)
        import tabnanny  # which nothing else here imports
        raise AssertionError(tabnanny)

    monkeypatch.delitem(sys.modules, "tabnanny", raising=False)
    monkeypatch.setattr(cli, "parser", loads)
    finders = list(sys.meta_path)
    assert main(["solve", "parvagpu-s1"]) == 143 and sys.meta_path == finders
    assert capsys.readouterr().err == "stopped before there was anything to return\n"


def test_ctrl_c_ends_what_searches_nothing_at_once():
    """In one line, with the exit code of shells, and without an exception inside of compiled code."""
    early = "import signal, sys, threading; from provision import cli, simulation\n" \
            "cli._run = lambda *given: signal.raise_signal(signal.SIGINT)\n" \
            "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(cli.main())"
    command = [sys.executable, "-c", early, "simulate", "parvagpu-s1", "p.json"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (130, "") and ran.stderr == "stopped before there was anything to return\n"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")
def test_ctrl_c_returns_the_best_plan_so_far():
    """Ctrl-C during the search for a proof ends the search, not the result: exit 0, a verified plan, "stopped"."""
    provision.write(hard_instance(), "hard.json")
    command = [sys.executable, "-m", "provision", "solve", "hard.json", "--time-limit", "600", "--json"]
    process = subprocess.Popen(
        [*command, "--out", "p.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        time.sleep(12)  # plan and bound are there within three seconds of the start
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    found = json.loads(out)
    assert process.returncode == 0, err
    assert found["termination"] == "stopped" and found["status"] == "feasible" and found["verified"] is True
    assert 0 < found["gap"] < 1 and found["plan_file"] == "p.json"
    assert main(["verify", "hard.json", "p.json"]) == 0
