"""``provision compare --simulate``: systems in one table, with what is predicted and what replayed requests meet."""

import json

import pytest

import provision
from provision.cli import main
from provision.instances.read import FAMILIES

SMALL = (*FAMILIES["parvagpu"][:2], *FAMILIES["igniter"][:2], *FAMILIES["gpulets"])


def rows(capsys, line):
    """The rows of ``provision compare LINE --json`` by method."""
    assert main(["compare", *line.split(), "--json"]) == 0
    return {row["method"]: row for row in json.loads(capsys.readouterr().out)}


def test_plans_that_the_verifier_rejects_are_replayed_too(capsys):
    """FFD's five GPUs with what they violate, beside iGniter's six that hold."""
    found = rows(capsys, "igniter-testbed-12 --methods igniter,ffd,parvagpu --simulate 3 --arrival-cv 0")
    holds, rejected, none = (found[name] for name in ("igniter", "ffd", "parvagpu"))
    assert (holds["gpus"], holds["violations"], holds["late_workloads"], holds["violation_rate"]) == (6, 0, 0, 0.0)
    assert (rejected["gpus"], rejected["status"], rejected["violated_workloads"]) == (5, "unknown", 9)
    assert rejected["violations"] >= 9 and rejected["late_workloads"] > 0 and rejected["violation_rate"] > 0.05
    assert none["status"] == "not applicable" and none["violated_workloads"] is none["violation_rate"] is None


def test_numbers_are_those_of_verify_and_simulate(capsys):
    """Also where replicas take turns."""
    [row] = rows(capsys, "gpulets-short-skew --methods nexus --simulate 5 --seed 3").values()
    instance = provision.read("gpulets-short-skew")
    plan = provision.solve(instance, "nexus").plan
    report = provision.simulate(instance, plan, 5, 3)
    over = [one for one in report.workloads if one.p99.mean_ms > one.slo_ms]
    late = sum(round(one.violation_rate * one.offered_rps * 4.5) for one in report.workloads)
    assert (row["late_workloads"], row["violated_workloads"]) == (len(over), 0)
    assert row["violation_rate"] == pytest.approx(late / sum(one.offered_rps * 4.5 for one in report.workloads))
    assert 0 < row["late_workloads"] == len(report.late) < 5


def test_nothing_is_replayed_unasked(capsys):
    [row] = rows(capsys, "parvagpu-s1 --methods parvagpu").values()
    assert row["late_workloads"] is row["violation_rate"] is None


def test_columns_and_bad_options(capsys):
    assert main(["compare", "parvagpu-s1", "--methods", "parvagpu", "--simulate", "2"]) == 0
    assert "violated_workloads" in capsys.readouterr().out
    assert main(["compare", "parvagpu-s1", "--methods", "parvagpu"]) == 0
    assert "violated_workloads" not in capsys.readouterr().out
    assert main(["compare", "parvagpu-s1", "--simulate", "0"]) == 2
    assert capsys.readouterr().err == (
        "error: argument --simulate: should be above 0 (got '0') (see provision compare --help)\n")


@pytest.mark.parametrize("name", SMALL)
def test_auto_is_never_worse(name):
    """On the small instances of the families no other method has a better plan that holds, and most have one."""
    instance, found = provision.read(name), {}
    for method in provision.methods().values():
        try:
            found[method.name] = provision.solve(instance, method.name, 12.0 if method.name == "auto" else 1.0)
        except provision.UnsupportedError:
            continue
    values = [one.objective for one in found.values() if one.verified]
    assert len(values) >= 5
    assert found["auto"].verified and found["auto"].objective <= min(values) * (1 + 1e-9)
