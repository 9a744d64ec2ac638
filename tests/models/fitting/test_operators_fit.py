"""Laws of operators from tables of our own making: they are found again, and tables correct them between shapes."""

import numpy as np
import pytest
from operator_tables import DECODE, EXPERTS, GEMM, PREFILL, REDUCE, write_tables

from provision.models.base.errors import InputError
from provision.models.fitting.operators.costs import fit_costs
from provision.models.fitting.operators.laws import fit_operators
from provision.models.fitting.operators.residuals import TableResiduals
from provision.models.performance.operators.compose import Iterations, Served, iteration_ms
from provision.models.performance.operators.decoder import shipped_decoder
from provision.models.performance.operators.laws import Gemm, gemm_ms

GPU = "h100-80gb"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables whose times are those of known laws."""
    return write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def found(tables):
    """The laws fitted to them."""
    return fit_operators(tables, GPU)


def test_laws_are_found_again(found):
    for law, true in ((found.gemm["bfloat16"], GEMM), (found.decode["bfloat16"], DECODE),
                      (found.prefill["bfloat16"], PREFILL), (found.experts["bfloat16"], EXPERTS),
                      (found.reduce["4"], REDUCE)):
        assert law.residual.median < 0.01 and law.residual.rows > 0, law
        assert law.bytes_per_ms == pytest.approx(true.bytes_per_ms, rel=0.1), law


def test_tables_correct_what_a_law_does_not_tell(tables, found):
    """Factors on a law that is twice too slow bring back the times of the tables, at shapes and between them."""
    slow = found.gemm["bfloat16"].model_copy(update={
        "fixed_ms": 2 * GEMM.fixed_ms, "bytes_per_ms": GEMM.bytes_per_ms / 2, "flop_per_ms": GEMM.flop_per_ms / 2})
    laws = found.model_copy(update={"gemm": {"bfloat16": slow}})
    factors = TableResiduals(tables, GPU, laws)
    for m, n, k in ((16, 4096, 8192), (1024, 28672, 4096), (100, 6000, 4096)):
        shape = Gemm(np.array([m]), n, k, 2.0)
        assert gemm_ms(slow, shape) * factors.gemm("bfloat16", shape) == pytest.approx(gemm_ms(GEMM, shape), rel=0.08)


def test_unknown_heads_are_left_to_the_laws(tables, found):
    factors = TableResiduals(tables, GPU, found)
    assert factors.decode("bfloat16", (7.0, 7.0, 96.0), np.array([4.0]), np.array([100.0])).tolist() == [1.0]


@pytest.mark.parametrize(("model", "gpus"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("mixtral-8x7b", 2)])
def test_coefficients_of_an_engine_give_the_composed_times(found, model, gpus):
    served = Served(shipped_decoder(model), found, gpus)
    fit = fit_costs(served)
    assert fit.median < 0.04 and fit.p90 < 0.12
    assert bool(fit.costs.experts) == bool(served.decoder.experts)


def test_more_work_takes_longer(found):
    served = Served(shipped_decoder("llama-3.1-8b"), found)
    grid = Iterations(np.array([1.0, 8.0, 8.0, 8.0]), np.array([100.0, 100.0, 4000.0, 4000.0]),
                      np.array([0.0, 0.0, 0.0, 2048.0]), np.array([0.0, 0.0, 0.0, 2e6]))
    assert (np.diff(iteration_ms(served, grid)) > 0).all()


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(InputError, match="name the folder of aiconfigurator's tables"):
        fit_operators(tmp_path, GPU)
    with pytest.raises(InputError, match="there are no operator times of it"):
        fit_operators(tmp_path, "t4")
