"""Notebooks: HTML that stands alone, short reprs, frames; and those that ship run from start to end."""

import builtins
import html
import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import provision
from provision.models.base.errors import InputError

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def instance():
    return provision.read("parvagpu-s1")


@pytest.fixture(scope="module")
def result(instance):
    return provision.solve(instance, "master")


@pytest.fixture(scope="module")
def shown(instance, result):
    """Everything that a notebook shows."""
    return [
        instance, result, result.plan, provision.simulate(instance, result.plan, seconds=2),
        provision.what_if(instance, {"rate": [0.5, 1.0]}, method="greedy"),
    ]


def test_html_stands_alone_in_a_frame(shown):
    for thing in shown:
        frame = thing._repr_html_()
        assert frame.startswith("<iframe srcdoc=") and frame.count("<iframe") == 1
        page = html.unescape(frame)
        assert "parvagpu-s1" in page or "what if" in page
        assert "src=\"http" not in page and "<link" not in page


def test_a_result_shows_its_proof(result):
    month = f"{result.objective:.2f} $ per hour ({result.objective * 730:,.0f} $ per month)"
    assert f"{month}. Proven: no plan costs less." in html.unescape(result._repr_html_())


def test_plans_of_instances_that_do_not_ship_are_drawn_without_predictions(result):
    page = html.unescape(result.plan.model_copy(update={"instance": "elsewhere"})._repr_html_())
    assert "elsewhere" in page and "throughput left" not in page


def test_no_plan_says_why(instance):
    tight = instance.model_copy(update={"fleet": (instance.fleet[0].model_copy(update={"count": 0}),)})
    none = provision.solve(tight, "greedy")
    assert none.plan is None
    assert "no plan" in repr(none) and none.status in html.unescape(none._repr_html_())


def test_reprs_are_short(shown, result):
    for thing in (*shown[:4], result.report):
        assert len(repr(thing)) < 150 and "\n" not in repr(thing)
    assert repr(result) == f"<Result of parvagpu-s1 by master: optimal, objective {result.objective:g}, " \
                           f"bound {result.bound:g}>"


def test_frames(shown, result):
    pytest.importorskip("pandas")
    instance, _, plan, replay, rows = shown
    assert list(instance.to_frame().name) == list(instance.workload)
    assert result.to_frame().objective[0] == result.objective
    assert len(plan.to_frame()) == len(result.report.to_frame()) == sum(1 for _ in plan.replicas())
    assert set(replay.to_frame().columns) >= {"workload", "p99_ms", "violation_rate"}
    assert list(rows.to_frame().rate) == [0.5, 1.0]


def test_without_pandas_one_line_says_what_to_install(result, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install 'gpu-provision\[pandas\]'"):
        result.to_frame()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path):
    """Every cell runs, in a shell of IPython, and nearly all show something; files keep no outputs."""
    shells = pytest.importorskip("IPython.core.interactiveshell", reason="cells are run by IPython (extra docs)")
    settings = pytest.importorskip("traitlets.config").Config(HistoryManager={"enabled": False})
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    shell, shown = shells.InteractiveShell(config=settings), 0
    for cell in cells:
        with redirect_stdout(io.StringIO()) as told:
            found = shell.run_cell("".join(cell["source"]))
        found.raise_error()
        shown += bool(told.getvalue() or found.result is not None)
    assert shown >= len(cells) - 2
