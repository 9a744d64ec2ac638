"""A program that grows has the same optimum as one that is solved from scratch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from provision.formulations.linear.highs import GrowingProgram, Rows, solve_linear


@given(st.integers(0, 10**6))
def test_a_program_that_grows_has_the_optimum_of_each_stage(seed: int) -> None:
    """Columns are added in three stages; between them, least values of known columns rise."""
    draw, columns, rows = np.random.default_rng(seed), 12, 5
    matrix = draw.integers(-1, 5, (rows, columns)) * (draw.random((rows, columns)) < 0.6)
    cost, right = draw.integers(0, 9, columns).astype(float), draw.integers(0, 9, rows).astype(float)
    most = np.where(draw.random(columns) < 0.5, draw.integers(1, 4, columns), np.inf).astype(float)
    least, program = np.zeros(columns), GrowingProgram()
    for many in (4, 8, columns):
        part = Rows(cost[:many], csr_array(matrix[:, :many].astype(float)), right, least[:many].copy(), most[:many])
        found, known = program.solve(part), solve_linear(part)
        assert (found is None) == (known is None)
        if found is not None and known is not None:
            assert found.value == pytest.approx(known.value, abs=1e-6)
            assert (part.matrix @ found.x >= right - 1e-6).all()
            assert (found.x >= part.least - 1e-6).all() and (found.x <= part.most + 1e-6).all()
            reduced = part.cost - part.matrix.T @ found.duals
            assert (found.duals >= 0).all() and found.reduced == pytest.approx(np.maximum(reduced, 0), abs=1e-6)
            ends = np.where(reduced > 0, part.least, np.where(np.isfinite(part.most), part.most, 0.0))
            assert found.value == pytest.approx(found.duals @ right + reduced @ ends, abs=1e-5)
            again = program.solve(part)  # nothing is new, so the last optimum is the answer
            assert again is not None and again.value == pytest.approx(found.value) and not program.solver.iterations()
        least[draw.integers(many)] = 1.0
