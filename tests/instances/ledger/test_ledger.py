"""The best-known ledger, generated instances by name, and ``provision bench``."""

import json

import pytest

import provision
from provision.cli import main
from provision.commands.planning import bench
from provision.comparing import compare as comparison
from provision.instances.ledger.ledger import better, entry, joined, ledger
from provision.instances.read import FAMILIES, read
from provision.models.problem.objective import objective_of

SMALL = "parvagpu-s1"


@pytest.mark.parametrize("name", sorted(ledger()))
def test_entries_hold(name):
    """Every entry belongs to the instance as it is, its plan is verified, and its value is the plan's."""
    known, instance = ledger()[name], read(name)
    assert known.instance == name and known.digest == instance.digest == known.plan.digest
    report = provision.verify(instance, known.plan)
    assert report.ok, report.violations[0]
    assert known.value == pytest.approx(objective_of(instance).value(known.plan))
    assert (
        known.bound is None
        or objective_of(instance).loss(known.bound) <= objective_of(instance).loss(known.value) + 1e-9 * known.value
    )


def test_every_family_member_has_an_entry():
    members = {name for family in FAMILIES.values() for name in family}
    assert members == set(ledger())


def test_a_worse_plan_adds_nothing_but_its_bound():
    instance = read(SMALL)
    known = ledger()[SMALL]
    worse = entry(provision.solve(instance, "parvagpu")).model_copy(update={"value": known.value + 1, "bound": None})
    assert not better(instance, worse, known) and better(instance, known, worse) and better(instance, worse, None)
    other = worse.model_copy(update={"bound": 1.0})
    assert joined(instance, other, known.model_copy(update={"bound": 0.5})).plan == known.plan
    assert joined(instance, other, known.model_copy(update={"bound": 0.5})).bound == 1.0


def test_bench_compares_with_the_ledger(tmp_path, capsys):
    assert main(["bench", "parvagpu", "--json", "--method", "greedy", "--ledger", str(tmp_path)]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["seed"], found["stopped"]) == ("greedy", 0, False)
    rows = found["rows"]
    assert [row["instance"] for row in rows] == list(FAMILIES["parvagpu"])
    assert all(row["best_known"] == ledger()[row["instance"]].value for row in rows)
    assert all(row["excess"] >= -1e-9 for row in rows)
    assert not list(tmp_path.iterdir())


def test_bench_says_no_when_an_answer_is_worse(capsys):
    assert main(["bench", "parvagpu", "--method", "parvagpu", "--json"]) == 1
    assert main(["bench", "nothing"]) == 2
    assert "unknown family" in capsys.readouterr().err


@pytest.fixture
def stopped(monkeypatch):
    """Ctrl-C comes in the third solve of a module of verbs."""

    def arrange(module, name):
        solve, calls = getattr(module, name), []

        def interrupted(*arguments, **rest):
            calls.append(arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return solve(*arguments, **rest)

        monkeypatch.setattr(module, name, interrupted)

    return arrange


def test_ctrl_c_keeps_the_rows_of_a_bench(stopped, capsys):
    stopped(bench, "solved")
    assert main(["bench", "parvagpu", "--method", "greedy", "--json"]) == 130
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["stopped"] and [row["instance"] for row in found["rows"]] == ["parvagpu-s1", "parvagpu-s2"]
    assert err == "stopped: 2 of 6 done\n"


def test_ctrl_c_keeps_the_rows_of_a_comparison(stopped, capsys):
    stopped(comparison, "solve")
    assert main(["compare", SMALL, "--methods", "greedy,parvagpu,paris,master"]) == 130
    out, err = capsys.readouterr()
    assert "parvagpu" in out and "paris" not in out
    assert err == "stopped: 2 of 4 done\n"


def test_generated_instances_by_name():
    assert len(read("igniter-30-seed4").workloads) == 30
    assert len(read("parvagpu-s5-x10").workloads) == 110
    with pytest.raises(provision.InputError, match="at least 1 workload"):
        read("igniter-0-seed1")
    with pytest.raises(provision.InputError, match="generated ones"):
        read("parvagpu-s9-x10")
