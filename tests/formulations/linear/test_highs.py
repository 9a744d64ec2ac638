"""Programs by HiGHS have the best answers, with duals that prove them, and nothing is printed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from provision.formulations.linear.highs import Rows, solve_integer, solve_linear
from provision.models.base.clock import stopping


def drawn(seed: int, columns: int = 8, rows: int = 5) -> Rows:
    """A covering program with limits; some have no solution."""
    draw = np.random.default_rng(seed)
    matrix = draw.integers(-1, 5, (rows, columns)) * (draw.random((rows, columns)) < 0.6)
    most = np.where(draw.random(columns) < 0.5, draw.integers(1, 4, columns), np.inf).astype(float)
    return Rows(draw.integers(1, 9, columns).astype(float), csr_array(matrix.astype(float)),
                draw.integers(0, 9, rows).astype(float), np.zeros(columns), most)


@given(st.integers(0, 10**6))
def test_duals_and_reduced_costs_prove_an_optimum(seed: int) -> None:
    rows = drawn(seed)
    known = milp(rows.cost, integrality=np.zeros(8), bounds=Bounds(rows.least, rows.most),
                 constraints=LinearConstraint(rows.matrix, lb=rows.right))
    found = solve_linear(rows)
    assert (found is None) == (known.status == 2)
    if found is not None:
        assert found.value == pytest.approx(known.fun, abs=1e-6)
        assert (rows.matrix @ found.x >= rows.right - 1e-6).all() and (found.duals >= 0).all()
        reduced = rows.cost - rows.matrix.T @ found.duals
        assert found.reduced == pytest.approx(np.maximum(reduced, 0), abs=1e-6)
        limited = np.isfinite(rows.most)
        assert found.value == pytest.approx(
            found.duals @ rows.right + np.minimum(reduced, 0)[limited] @ rows.most[limited], abs=1e-6)


@given(st.integers(0, 10**6))
def test_whole_numbers_are_the_best(seed: int) -> None:
    """An integer program has SciPy's value, and its bound is no higher."""
    rows = drawn(seed)
    known = milp(rows.cost, integrality=np.ones(8), bounds=Bounds(rows.least, rows.most),
                 constraints=LinearConstraint(rows.matrix, lb=rows.right))
    found = solve_integer(rows, np.ones(8, bool), 10.0)
    assert (found.x is None) == (known.x is None)
    assert found.status == ("infeasible" if found.x is None else "optimal")
    if found.x is not None:
        assert rows.cost @ found.x == pytest.approx(known.fun, rel=1e-4) and found.bound <= known.fun + 1e-6


@pytest.mark.parametrize(("right", "solved"), [(0.0, True), (1.0, False)])
def test_programs_without_columns_are_judged_by_their_rows(right: float, solved: bool) -> None:
    none = np.zeros(0)
    assert (solve_linear(Rows(none, csr_array((1, 0)), np.array([right]), none, none)) is not None) == solved


def test_a_stop_ends_the_wait_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    matrix = csr_array((draw.random((60, 300)) < 0.3) * draw.integers(1, 50, (60, 300)) * 1.0)
    rows = Rows(draw.uniform(1, 2, 300), matrix, draw.integers(100, 300, 60).astype(float), np.zeros(300),
                np.full(300, np.inf))
    assert solve_linear(rows) is not None
    with stopping() as stop:
        stop.ask()
        assert solve_integer(rows, np.ones(300, bool), 5.0).x is None
    assert capfd.readouterr() == ("", "")
