"""Writes HTML for notebooks: plans drawn as on pages; instances, replays and sweeps as tables."""

from html import escape
from typing import Any

from provision.draw.drawing import Drawing
from provision.draw.html import document, lines, table
from provision.draw.page import plan_parts
from provision.draw.verdict import standing_of
from provision.instances.read import shipped, shipped_instances
from provision.models.plans.plan import Plan
from provision.models.plans.result import Result
from provision.models.plans.simulation_report import SimulationReport
from provision.models.problem.instance import Instance
from provision.sweeps.table import Rows, aligned

HEAD_PX, ROW_PX, GPU_PX, MOST_PX = 170, 33, 72, 1000
"""Heights in pixels: the head, a row of a table, a GPU's strip, and the most that a cell of the notebook may have
before it scrolls.
"""
FARED = ("workload", "ok", "slo_ms", "p50_ms", "p95_ms", "p99_ms", "violation_rate", "throughput_rps", "dropped")


def html_of(thing: object) -> str:
    """The HTML of a Plan, Result, Instance, SimulationReport or the Rows of a sweep, inside an iframe.

    The iframe keeps the styles of the page and of the notebook apart.
    """
    if isinstance(thing, Result):
        return _result(thing)
    if isinstance(thing, Plan):
        return _plan(Drawing(thing, _known(thing.instance, thing.digest)))
    if isinstance(thing, Instance):
        return _rows(repr(thing), thing.source, [one.model_dump(exclude_defaults=True) for one in thing.workloads])
    if isinstance(thing, SimulationReport):
        fared = [one.summary() for one in (*thing.workloads, *thing.workflows)]
        rows = [{name: one[name] for name in FARED} for one in fared]
        return _rows(repr(thing), f"{thing.settings.seconds:g} s of arrivals", rows, thing.notes)
    if isinstance(thing, Rows):
        return _rows("what if", f"{len(thing)} points", thing)
    raise TypeError(f"nothing says how a {type(thing).__name__} looks")


def _result(result: Result) -> str:
    instance = _known(result.instance, result.digest)
    if result.plan is None:
        return _framed(document(repr(result), result.reason, []), HEAD_PX)
    standing = standing_of(instance, result) if instance else None
    return _plan(Drawing(result.plan, instance, standing), result)


def _plan(drawing: Drawing, result: Result | None = None) -> str:
    parts = plan_parts(drawing, result.report if result else None)
    height = HEAD_PX + 150 + GPU_PX * sum(row.lanes for row in drawing.shown) + ROW_PX * len(drawing.workloads)
    return _framed(document(drawing.title, drawing.summary, parts), height)


def _rows(title: str, summary: str, rows: Any, notes: Any = ()) -> str:
    """An iframe with a table of rows, which are dictionaries by column."""
    same = aligned(rows) if rows else []
    drawn = table(list(same[0]), [list(row.values()) for row in same]) if same else ""
    return _framed(document(title.strip("<>"), summary, [lines(notes), drawn]), HEAD_PX + ROW_PX * (len(same) + 1))


def _framed(page: str, height_px: int) -> str:
    """An iframe that shows an HTML page inside another page."""
    return (
        f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{min(height_px, MOST_PX)}px;border:0" '
        'loading="lazy"></iframe>'
    )


def _known(name: str, digest: str) -> Instance | None:
    """The shipped instance of a name, if it has this digest; else None."""
    if name not in shipped_instances():
        return None
    instance = shipped(name)
    return instance if digest in ("", instance.digest) else None
