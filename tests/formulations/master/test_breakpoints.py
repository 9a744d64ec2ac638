"""Prices interpolated between knots: weights, jumps, and the linear program over knots against that of all rows."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.formulations.master.breakpoints import BROKEN, Breakpoints
from provision.formulations.master.generation import Generation
from provision.formulations.search.problem import Problem
from provision.models.base.clock import Deadline


def finer_problem(pieces=24):
    """Three workloads that may be split, one of them in two SLOs, with many steps of rates that were cut finer."""
    rows = [{"name": "r", "model": "resnet50", "slo_ms": 40.0, "rate_rps": 400.0},
            {"name": "s", "model": "resnet50", "slo_ms": 60.0, "rate_rps": 300.0},
            {"name": "v", "model": "vgg19", "slo_ms": 60.0, "rate_rps": 250.0}]
    instance = provision.Instance(version=2, name="knots", workloads=rows, fleet=[{"gpu": "v100"}],
                                  performance=("igniter-v100",),
                                  policy={"latency_budget": "half_slo"})
    groups = Problem(instance).groups
    finer = {group.workload_class: frozenset(np.linspace(0, group.rate_rps, pieces + 1)[1:-1].tolist())
             for group in groups}
    return Problem(instance, groups, finer=finer)


@pytest.fixture(scope="module")
def problem():
    return finer_problem()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(0, 2**32 - 1))
def test_prices_rise_with_the_rate_and_jump_only_at_knots(problem, jumps, seed):
    """Prices of roles lie between those of their neighbouring knots, whatever the knots are."""
    breakpoints = Breakpoints(problem)
    breakpoints.jump([at % len(problem.roles) for at in jumps])
    prices = np.random.default_rng(seed).random(breakpoints.weights.shape[0])
    assert np.allclose(breakpoints.weights.sum(axis=0), 1)
    assert breakpoints.weights.min() >= 0
    found = breakpoints.weights.T @ prices
    at = np.flatnonzero(breakpoints.chosen)
    assert np.allclose(found[at], prices)
    for low, high in pairwise(at):
        within = found[low : high + 1]
        assert within.min() >= min(found[low], found[high]) - 1e-12
        assert within.max() <= max(found[low], found[high]) + 1e-12


def test_fewer_rows_relax_the_program_and_splitting_ends_at_its_value(problem):
    """The program over knots costs no more than that of all rows, and as much once no row of a role is broken."""
    generation = Generation(problem)
    for _ in generation.rounds(Deadline(np.inf)):
        if generation.round == 12:
            break
    program, breakpoints = generation.program, Breakpoints(problem)
    whole, first = program.relaxed(), program.relaxed(breakpoints=breakpoints)
    assert not breakpoints.all
    assert first.value <= whole.value + 1e-9
    found = first
    while breakpoints.split(found.spare):
        found = program.relaxed(breakpoints=breakpoints)
        assert first.value - 1e-9 <= found.value <= whole.value + 1e-9
    assert not breakpoints.all
    assert found.value == pytest.approx(whole.value, abs=1e-2)
    reduced = found.reduced[program.others :]
    assert reduced.min() >= -1e-7


def test_a_broken_row_becomes_a_jump(problem):
    breakpoints = Breakpoints(problem)
    at = int(np.flatnonzero(~breakpoints.chosen)[0])
    spare = np.zeros(len(problem.roles))
    assert not breakpoints.split(spare)
    spare[at] = -2 * BROKEN
    assert breakpoints.split(spare)
    assert breakpoints.jumps[at]
    assert breakpoints.chosen[at + 1]
