"""``provision.compare``: runs, means with their intervals, and every form that a table is written in."""

import json
import math
import signal

import numpy as np
import pytest

import provision
from provision.cli import main
from provision.comparing.table import ComparisonTable, mean_and_interval
from provision.draw.comparison import comparison_figure
from provision.instances.read import FAMILIES
from provision.models.base.errors import InputError
from provision.models.problem.search import Outcome


def dedicated(instance, search):
    """A heuristic of one's own: what greedy finds, on GPUs of one workload each."""
    plans = [provision.solve(instance.replace(workloads=(one,)), "greedy", replay=False).plan
             for one in instance.workloads]
    gpus = tuple(gpu for plan in plans for gpu in plan.gpus)
    return Outcome("feasible", "completed", plans[0].model_copy(update={"gpus": gpus, "digest": instance.digest}))


@pytest.fixture(scope="module")
def table():
    return provision.compare(["parvagpu-s1", "parvagpu-s2"], ["greedy", "paris", "igniter", dedicated], range(3), 2.0)


def test_every_method_runs_on_every_instance_with_every_seed(table):
    assert len(table.runs) == 2 * 4 * 3 and table.methods == ["greedy", "paris", "igniter", "dedicated"]
    assert table.refused == ["igniter"]
    rows = {(row["instance"], row["method"]): row for row in table.rows}
    assert len(rows) == 6 and all(row["runs"] == row["hold"] == 3 for row in rows.values())
    best = rows["parvagpu-s1", "greedy"]
    assert (best["objective"], best["objective_ci"], best["excess"]) == (pytest.approx(10.24), pytest.approx(0), 0)
    own = rows["parvagpu-s1", "dedicated"]
    assert own["excess"] == pytest.approx(own["objective"] / best["objective"] - 1) and own["excess"] > 0


def test_the_profile_starts_at_the_best(table):
    ratios = table.ratios()
    assert set(ratios) == {"greedy", "paris", "dedicated"} and ratios["greedy"].tolist() == [1.0] * 6
    assert min(ratios["paris"]) > 1 and (np.diff(ratios["paris"]) >= 0).all()


def test_intervals_are_students():
    """From a table of the distribution: 4.303 for two degrees of freedom."""
    mean, half = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2 and half == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert mean_and_interval([5.0]) == (5, None) and mean_and_interval([]) == (None, None)
    assert mean_and_interval([4.0, 5.0]) == (4.5, None)  # 4.5 +- 6.4 would say nothing


def test_it_is_written_in_every_form(table, tmp_path):
    frame = table.to_frame()
    assert len(frame) == 6 and len(table.runs_to_frame()) == 24
    latex = table.to_latex()
    assert r"\toprule" in latex and r"greedy & $\mathbf{10.24" in latex and "igniter" not in latex
    assert "parvagpu-s1" in table._repr_html_() and "3 seeds" not in repr(table)
    for name in ("t.csv", "t.tex", "t.png", "t.svg"):
        table.write(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 200
        with pytest.raises(InputError, match="exists already"):
            table.write(tmp_path / name)


def runs_on(*objectives, bound=None, verified=True, **more):
    """Runs of one method on instances i0, i1, ... with these objectives."""
    return [{"instance": f"i{at}", "seed": 0, "status": "feasible", "verified": verified, "objective": value, "gpus": 1,
             "bound": bound, "build_seconds": 0.0, "solve_seconds": 1.0} | more for at, value in enumerate(objectives)]


def test_gaps_are_to_the_best_bound_of_any_method_and_averaged_over_instances():
    runs = runs_on(20.0, 25.0, 20.0, method="own") + runs_on(16.0, 16.0, 16.0, bound=15.0, method="exact")
    table = ComparisonTable(tuple(runs), dict.fromkeys(("i0", "i1", "i2"), "$ per hour"))
    assert [row["gap"] for row in table.rows if row["method"] == "own"] == pytest.approx([0.25, 0.4, 0.25])
    own, exact = table.overall
    assert own["instances"] == 3 and own["gap"] == pytest.approx(0.3)
    assert own["gap_ci"] == pytest.approx(4.303 * 0.05, abs=1e-3)
    assert exact["gap"] == pytest.approx(0.0625) and exact["gap_ci"] == 0 and exact["excess"] == 0
    assert r"own & 3 & $0.35 \pm 0.45$ & $0.30 \pm 0.22$ & $1$ \\" in table.to_latex()


def test_equal_values_have_no_interval():
    assert mean_and_interval([25.6, 25.6, 25.6 + 4e-15]) == (pytest.approx(25.6), 0.0)


def test_plans_that_break_slos_are_drawn_and_named():
    runs = runs_on(20.0, method="good") + runs_on(15.0, method="bad", verified=False)
    table = ComparisonTable(tuple(runs), {"i0": "$ per hour"})
    figure = comparison_figure(table)
    bars, _ = figure.axes
    assert sorted(bars.get_legend_handles_labels()[1]) == ["bad: breaks SLOs", "good"]
    assert sorted(bar.get_height() for bar in bars.patches) == [15.0, 20.0]


def test_methods_without_a_plan_that_holds_have_no_mean():
    failed = {"instance": "i", "method": "bad", "seed": 0, "status": "error", "reason": "why"}
    good = failed | {"method": "good", "status": "feasible", "objective": 50.0, "verified": True, "gpus": 1,
                     "build_seconds": 0.0, "solve_seconds": 1.0, "bound": None}
    table = ComparisonTable((failed, good, good | {"method": "less", "objective": 40.0}), {"i": "requests/s"})
    assert [row["excess"] for row in table.rows] == [None, 0, 0.25] and "bad & --" in table.to_latex()
    assert table.ratios()["bad"].tolist() == [math.inf]


@pytest.mark.parametrize("given, said", [
    (dict(instances=[]), "instances: should be at least one"), (dict(seeds=[]), "seeds: should be at least one"),
    (dict(methods=["greedyy"]), "unknown method 'greedyy'"),
    (dict(instances=["parvagpu-s1"] * 2), "stands there twice"),
])
def test_nothing_to_compare_is_one_line(given, said):
    with pytest.raises(InputError) as told:
        provision.compare(**{"instances": "parvagpu-s1", "methods": "greedy"} | given)
    assert said in str(told.value)


def test_the_verb_says_in_one_line_who_cannot_plan(capsys, tmp_path):
    line = ["compare", "igniter-motivation", "--methods", "igniter,parvagpu,paris,nexus", "--time-limit", "2"]
    assert main([*line, "--out", str(tmp_path / "t.tex")]) == 0
    out = capsys.readouterr().out
    assert "3 methods cannot plan this: parvagpu, paris, nexus (--json" in out and "cannot plan GPUs" not in out
    assert (tmp_path / "t.tex").read_text().count("igniter") == 2
    assert main([*line, "--out", str(tmp_path / "t.txt")]) == 2
    assert "a comparison is written as .csv, .tex, .png, .svg" in capsys.readouterr().err


def test_the_verb_takes_several_instances_and_seeds(capsys, tmp_path):
    line = ["compare", "parvagpu-s1", "parvagpu-s2", "--methods", "greedy,paris", "--seeds", "2"]
    assert main([*line, "--out", str(tmp_path / "t.png")]) == 0
    out = capsys.readouterr().out
    assert "objective_ci" in out and out.count("paris") == 3 and (tmp_path / "t.png").exists()


@pytest.fixture
def few(tmp_path):
    """The file of an instance with at least two replicas per workload, which MIG-serving's methods refuse."""
    instance = provision.read("parvagpu-s1")
    several = tuple(one.model_copy(update={"min_replicas": 2}) for one in instance.workloads)
    provision.write(instance.replace(name="few", workloads=several), tmp_path / "few.yaml")
    return str(tmp_path / "few.yaml")


@pytest.fixture
def stop_after(monkeypatch):
    """A function: Ctrl-C comes while a comparison makes the run after the first ``done``. Returns all that began."""
    def stop(done):
        calls = []

        def solve(*given, **options):
            calls.append(given)
            if len(calls) > done:
                signal.raise_signal(signal.SIGINT)
            return provision.solve(*given, **options)

        monkeypatch.setattr("provision.comparing.compare.solve", solve)
        return calls

    return stop


@pytest.mark.parametrize("done", range(4))
def test_ctrl_c_keeps_the_runs_that_are_done_on_all_instances(done, stop_after, capsys, tmp_path):
    calls = stop_after(done)
    line = ["compare", "parvagpu-s1", "parvagpu-s2", "--methods", "greedy,paris", "--out", str(tmp_path / "t.csv")]
    assert main(line) == 130
    out, err = capsys.readouterr()
    assert len(calls) == done + 1 and (tmp_path / "t.csv").exists() == (done > 0)
    assert (f"stopped: {done} of 4 done" if done else "stopped before there was anything") in err
    assert (out.count("parvagpu-s1"), out.count("parvagpu-s2")) == (min(done, 2), max(done - 2, 0))


def test_ctrl_c_writes_no_file_without_means(stop_after, capsys, tmp_path):
    stop_after(1)
    assert main(["compare", "parvagpu-s1", "--methods", "igniter,greedy", "--out", str(tmp_path / "t.csv")]) == 130
    assert "igniter: method igniter cannot plan" in capsys.readouterr().out and not (tmp_path / "t.csv").exists()


def test_ctrl_c_leaves_no_picture_of_a_part_of_a_family(stop_after, monkeypatch, tmp_path):
    stop_after(1)
    monkeypatch.setitem(FAMILIES, "variants", ("parvagpu-s1", "parvagpu-s2"))
    assert main(["bench", "variants", "--method", "greedy", "--figures", str(tmp_path / "f")]) == 130
    assert not (tmp_path / "f/variants.png").exists()


def test_it_says_which_instances_a_method_cannot_plan_and_over_how_many_means_are(few, capsys):
    line = ["compare", "parvagpu-s1", few, "--methods"]
    assert main([*line, "greedy,mig-serving-fast", "--seeds", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("mig-serving-fast on few: method mig-serving-fast cannot plan min_replicas other than 1; ") == 1
    assert "mig-serving-fast on parvagpu-s1" not in out
    words = [text.split() for text in out.splitlines()]
    assert {"greedy 2 of 2", "mig-serving-fast 1 of 2"} <= {" ".join(one[:4]) for one in words}
    assert main([*line, "greedy,mig-serving-fast,mig-serving-slow", "--time-limit", "2"]) == 0
    assert "2 methods cannot plan few: mig-serving-fast, mig-serving-slow (--json" in capsys.readouterr().out


@pytest.mark.parametrize("several", [False, True])
def test_methods_that_all_refuse_are_an_error(several, few, capsys, tmp_path):
    line = ["compare", few, *["parvagpu-s1"] * several, "--methods", "igniter,nexus", "--out", str(tmp_path / "t.csv")]
    assert main(line) == 2
    told = capsys.readouterr()
    before = ["few: ", "parvagpu-s1: "] if several else [""]
    assert told.out == "" and len(told.err.splitlines()) == 2 * len(before)
    for where in before:
        for method in ("igniter", "nexus"):
            assert f"error: {where}method {method} cannot plan" in told.err


def test_the_figures_of_a_family_are_one_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "variants", ("parvagpu-s1",))
    line = ["bench", "variants", "--method", "greedy", "--time-limit", "2"]
    assert main([*line, "--figures", str(tmp_path / "f")]) == 0
    assert (tmp_path / "f/variants.png").stat().st_size > 5000 and "f/variants.png" in capsys.readouterr().err
    assert main([*line, "--figures", str(tmp_path / "f")]) == 2
    assert "variants.png: exists already" in capsys.readouterr().err


def test_show_and_report_have_json(capsys, tmp_path):
    plan = tmp_path / "p.json"
    provision.write(provision.solve("parvagpu-s1", "greedy", replay=False).plan, plan)
    assert main(["show", str(plan), "--replay", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["plan"]["gpus"]) == 2 and found["report"]["ok"] and found["replayed_s"] == 2
    line = ["report", "parvagpu-s1", "--method", "greedy", "--methods", "paris", "--vary", "rate=1", "--seconds", "2"]
    assert main([*line, "--time-limit", "2", "--out", str(tmp_path / "r.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(tmp_path / "r.html")
