"""No plan of one point of a sweep refutes the bound of another; a point that fails costs no other point."""

import json

import pytest
from sweeps import contradictions, two_types

import provision
from provision.cli import main
from provision.models.base.errors import MethodError
from provision.sweeps import run as sweep
from provision.sweeps.breakpoints import breakpoints
from provision.sweeps.parameters import changed


@pytest.mark.parametrize("seed", [2, 5])
def test_no_plan_refutes_the_bound_of_another_point(seed):
    """Seed 2: at the highest rates that the verifier accepts, a bound of 9.52 was claimed; the plan costs 5.04."""
    points, lines = contradictions(seed, 20)
    assert points >= 9 and not lines


def test_a_rate_missed_by_as_much_as_the_verifier_allows_leaves_room_for_rounding():
    """At this rate segments miss 1 part in 10^9, and divided among them the rate exceeds a throughput by more."""
    instance = changed(two_types(52), {"rate": 1.010367783841604})
    result = provision.solve(instance, "auto", 20, replay=False)
    assert result.status != "infeasible" and result.bound <= 2.6


@pytest.fixture
def broken(monkeypatch):
    """A method that contradicts itself where the rate is above 1.5 times that of parvagpu-s1."""
    real, most = sweep.solve, 1.5 * provision.read("parvagpu-s1").workloads[0].rate_rps

    def solve(instance, *args, **options):
        if instance.workloads[0].rate_rps > most:
            raise MethodError("method auto claims a bound of 9, and its plan has 8")
        return real(instance, *args, **options)

    monkeypatch.setattr(sweep, "solve", solve)


def test_a_point_that_fails_is_one_line(broken, capsys):
    command = ["what-if", "parvagpu-s1", "--vary", "rate=1,1.4,1.6", "--method", "auto"]
    assert main(command) == 1
    told = capsys.readouterr().out.splitlines()
    assert "rate 1.6: method auto claims a bound of 9, and its plan has 8" in told
    assert main([*command, "--breakpoints", "rate", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in found["rows"]] == ["optimal", "optimal", "failed"]
    assert found["unproven"] == ["breakpoints rate: nothing proven at 1.6: method auto claims a bound of 9, and its "
                                 "plan has 8"]
    assert all(one["above"] <= 1.4 for one in found["breakpoints"]["rate"])


def test_breakpoints_beside_a_value_without_proof_are_found(broken):
    lines = []
    settings = {"method": "auto", "time_limit_s": 60.0, "seed": 0}
    found = breakpoints(provision.read("parvagpu-s1"), "rate", [0.5, 1.4, 1.6], settings, note=lines.append)
    assert found and found[-1].above <= 1.4 and len(lines) == 1


def test_sweeps_have_two_types_and_a_tier():
    for seed in range(20):
        fleet = two_types(seed).fleet
        assert len({one.gpu for one in fleet}) == 2 and fleet[0].count and fleet[0].price_per_hour < min(
            one.price_per_hour for one in fleet[1:] if one.gpu == fleet[0].gpu)
