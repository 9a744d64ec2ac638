"""Writes a solved job as a single HTML file: the drawn plan, the proof, the course of the search, the instance."""

from collections.abc import Sequence
from html import escape

import yaml

from provision import Instance, Plan, verify
from provision.draw.page import render_page
from provision.service.messages.answers import Incumbent, Job

WIDTH, HEIGHT, MARGIN = 720, 220, 44
"""The width, height and margin of the chart of objective and bound, in pixels."""


def report_of(job: Job, instance: Instance, plan: Plan) -> str:
    """The HTML page of a job with a plan; the page loads nothing from elsewhere."""
    return render_page(plan, instance, verify(instance, plan), _proof(job) + _curves(job.incumbents) + _input(instance))


def _proof(job: Job) -> str:
    result = job.result or {}
    versions = ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items())
    gap = "–" if result.get("gap") is None else f"{result['gap']:.2%}"
    facts = {
        "status": result.get("status"), "objective": result.get("objective"), "proven bound": result.get("bound"),
        "gap": gap, "method": result.get("method"), "ended": result.get("termination"), "seed": result.get("seed"),
        "seconds": result.get("solve_seconds"), "instance digest": job.instance_digest, "job": job.id,
        "versions": versions,
    }
    rows = "".join(f"<tr><th scope=row>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
                   for name, value in facts.items() if value not in (None, ""))
    return f'<section class="proof"><h2>Proof</h2><table class="facts"><tbody>{rows}</tbody></table></section>'


def _curves(incumbents: Sequence[Incumbent]) -> str:
    """A chart in SVG of objective and bound over time, as steps; empty if there are fewer than two incumbents."""
    values = [value for one in incumbents for value in (one.objective, one.bound) if value is not None]
    if len(incumbents) < 2 or not values:
        return ""
    low, high, end = min(values), max(values), max(one.seconds for one in incumbents) or 1.0
    spread = high - low or 1.0

    def steps(name: str) -> str:
        path, known = "", False
        for one in incumbents:
            value = getattr(one, name)
            if value is not None:
                across = MARGIN + one.seconds / end * (WIDTH - 2 * MARGIN)
                down = HEIGHT - MARGIN / 2 - (value - low) / spread * (HEIGHT - MARGIN)
                path += f"H{across:.1f}V{down:.1f}" if known else f"M{across:.1f},{down:.1f}"
                known = True
        return path + (f"H{WIDTH - MARGIN}" if known else "")

    lines = "".join(f'<path class="{name}" d="{steps(name)}"/>' for name in ("objective", "bound"))
    label = f"objective and bound over {end:g} s, between {low:g} and {high:g}"
    return (
        f'<section class="curves"><h2>How the search went</h2><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}">{lines}<text x="{MARGIN}" y="14">{high:.6g}</text>'
        f'<text x="{MARGIN}" y="{HEIGHT - 4}">{low:.6g}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 4}" text-anchor="end">{end:.3g} s</text></svg>'
        '<p>solid: best plan so far · dashed: proven bound</p></section>'
    )


def _input(instance: Instance) -> str:
    content = instance.model_dump(mode="json", exclude_none=True)
    text = yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False, default_flow_style=None, width=115)
    return f"<details><summary>The instance, to solve again</summary><pre>{escape(text)}</pre></details>"
