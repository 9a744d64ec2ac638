"""Draws the diagrams of the documentation: ``python docs/draw_diagrams.py`` writes them to ``docs/img``.

Each is a list of boxes, arrows and words on a plain grid; geometry of MIG comes from the package's own data, and
figures from ``benchmarks/results``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from xml.sax.saxutils import escape

from matplotlib.figure import Figure

from provision.models.hardware.gpu import gpu_type

FOLDER = Path(__file__).parent / "img"
INK, FAINT, LINE, PAPER = "#16191d", "#5f6772", "#9aa3ae", "#ffffff"
BLUE, ORANGE, GREEN, GREY = "#d6e6f5", "#fbe3c0", "#d3eee2", "#f1f3f5"
FONT = "system-ui, 'DejaVu Sans', sans-serif"


class Sheet:
    """A drawing of some size, in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="{FONT}" font-size="13" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{FAINT}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, words: str = "", fill: str = BLUE) -> None:
        """A box with lines of words in its middle, the first one bold."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" '
                          f'stroke="{LINE}"/>')
        lines = words.split("\n") if words else []
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for at, line in enumerate(lines):
            self.words(x + width / 2, top + 17 * at, line, "middle", bold=at == 0, faint=at > 0)

    def words(
        self, x: float, y: float, text: str, anchor: str = "start", bold: bool = False, faint: bool = False
    ) -> None:
        """A line of words."""
        style = (' font-weight="600"' if bold else "") + (f' fill="{FAINT}" font-size="12"' if faint else "")
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}>{escape(text)}</text>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line with a head at its end."""
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'<path d="{path}" fill="none" stroke="{FAINT}" stroke-width="1.5" marker-end="url(#head)"/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, dashed: bool = False) -> None:
        """A plain line."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{LINE}"{dashes}/>')

    def write(self, name: str) -> None:
        """Write the drawing."""
        (FOLDER / f"{name}.svg").write_text("\n".join([*self.parts, "</svg>", ""]), encoding="utf-8")


def request() -> None:
    """From a request to a batch to a slice."""
    sheet = Sheet(860, 190, "A request waits for a batch, and the batch for a process of a replica on a slice")
    for at, (words, fill) in enumerate((
        ("requests\nof a workload", GREY), ("routing\nto one replica", BLUE),
        ("batch forms\nfull, or delay is over", ORANGE), ("a process is free\nof the replica", ORANGE),
        ("batch runs\non a slice of a GPU", GREEN),
    )):
        sheet.box(20 + 168 * at, 40, 148, 56, words, fill)
        if at:
            sheet.arrow((20 + 168 * at - 20, 68), (20 + 168 * at, 68))
    sheet.line(188, 130, 840, 130)
    sheet.words(514, 150, "latency of a request: forming, waiting and running together keep the SLO", "middle",
                faint=True)
    for x in (188, 840):
        sheet.line(x, 124, x, 136)
    sheet.write("request")


def mig() -> None:
    """Where the MIG profiles of an A100 may stand."""
    gpu = gpu_type("a100-80gb")
    profiles = [one for one in gpu.profiles.values() if one.variant == "plain"]
    rows = [(one, start) for one in profiles for start in one.starts]
    cell, left, top = 78, 130, 52
    sheet = Sheet(left + 8 * cell + 20, top + 25 * len(rows) + 16, "Placements of MIG profiles on an A100-80GB")
    for at in range(8):
        sheet.words(left + (at + 0.5) * cell, 36, f"memory {at}", "middle", faint=True)
        sheet.line(left + at * cell, 44, left + at * cell, top + 25 * len(rows), dashed=True)
    colours = (BLUE, ORANGE, GREEN, "#ead7f0", GREY)
    seen = set()
    for at, (one, start) in enumerate(rows):
        if one.name not in seen:
            sheet.words(16, top + 25 * at + 15, one.name, bold=True)
            seen.add(one.name)
        words = f"{one.compute} compute, {one.memory} memory"
        colour = colours[profiles.index(one) % 5]
        sheet.box(left + start * cell + 2, top + 25 * at, one.memory * cell - 4, 21, "", colour)
        if one.memory > 1:
            sheet.words(left + (start + one.memory / 2) * cell, top + 25 * at + 15, words, "middle", faint=True)
    sheet.write("mig")


def gpu(sheet: Sheet, y: float, name: str, slices: list[tuple[int, int, str, str]], x: float = 110, cell: float = 30
        ) -> None:
    """A GPU of eight memory slices, with slices (start, memory, words, colour) on it."""
    sheet.words(x - 10, y + 21, name, "end", faint=True)
    sheet.box(x, y, 8 * cell, 32, "", PAPER)
    for start, memory, words, colour in slices:
        sheet.box(x + start * cell + 2, y + 3, memory * cell - 4, 26, words, colour)


def cluster() -> None:
    """The verbs that look at a cluster: before and after, or predicted and observed."""
    sheet = Sheet(860, 176, "recommend: what runs needs fewer GPUs, and the steps there keep every SLO")
    for at, (name, slices) in enumerate((("n1/0", [(0, 4, "resnet50", BLUE), (4, 4, "resnet50", BLUE)]),
                                         ("n1/1", [(0, 4, "bert", ORANGE)]), ("n2/0", [(0, 8, "vgg19", GREEN)]))):
        gpu(sheet, 40 + 42 * at, name, slices)
    sheet.words(230, 26, "now: 3 GPUs", "middle", bold=True)
    sheet.arrow((370, 98), (510, 98))
    sheet.words(440, 88, "steps, each carrying all", "middle", faint=True)
    gpu(sheet, 82, "n1/0", [(0, 4, "resnet50", BLUE), (4, 2, "bert", ORANGE), (6, 2, "vgg19", GREEN)], 580)
    sheet.words(700, 26, "enough: 1 GPU, proven", "middle", bold=True)
    sheet.write("recommend")

    sheet = Sheet(860, 150, "calibrate: a percentile is inside if the observed meets the band of the predicted")
    for y, name, at, says in ((40, "P50", 346, "inside"), (92, "P99", 560, "outside: exit 1, corrected data")):
        sheet.words(40, y + 21, name, bold=True)
        sheet.line(90, y + 16, 820, y + 16)
        middle = 290 if name == "P50" else 470
        sheet.box(middle - 60, y + 4, 120, 24, "predicted", BLUE)
        sheet.box(at - 4, y - 2, 8, 36, "", ORANGE)
        sheet.words(at + 14, y + 10, f"observed, {says}", faint=True)
    sheet.words(820, 142, "ms", "end", faint=True)
    sheet.write("calibrate")

    sheet = Sheet(860, 210, "watch: a rate leaves its band, and a new plan is decided at once")
    steps = ((60, 120), (300, 50), (560, 120))
    for at, (x, band) in enumerate(steps):
        end = steps[at + 1][0] if at < 2 else 820
        sheet.box(x, band, end - x, 180 - band, "", BLUE)
        sheet.line(x + 4, band - 4, end - 4, band - 4, dashed=True)
        sheet.words(x + 8, band + 16, "the plan carries this much", faint=True)
    sheet.arrow((60, 166), (246, 158), (284, 112), (300, 80), (420, 72), (470, 150), (820, 152))
    sheet.words(300, 36, "leaves its band: decided at once", "middle", bold=True)
    sheet.words(690, 106, "an interval without need: fewer", "middle", bold=True)
    sheet.line(60, 180, 820, 180)
    sheet.words(820, 200, "time", "end", faint=True)
    sheet.write("watch")

    sheet = Sheet(860, 130, "defragment: the fewest moves that let a GPU stand empty, or make room for a profile")
    for at, (name, slices) in enumerate((("n0/0", [(0, 4, "3g", BLUE)]), ("n0/1", [(0, 2, "2g", ORANGE)]))):
        gpu(sheet, 40 + 42 * at, name, slices)
        gpu(sheet, 40 + 42 * at, name, [] if at else [(0, 4, "3g", BLUE), (4, 2, "2g", ORANGE)], 580)
    sheet.words(230, 26, "now", "middle", bold=True)
    sheet.words(700, 26, "after one move: n0/1 is empty", "middle", bold=True)
    sheet.arrow((370, 78), (510, 78))
    sheet.write("defragment")

    sheet = Sheet(860, 130, "layout: first fit fails in the order 3g, 4g, and reaches the layout in the order 4g, 3g")
    gpu(sheet, 62, "3g, 4g", [(0, 4, "3g.40gb", BLUE)])
    sheet.words(230, 26, "3g takes 0; 4g may only start at 0", "middle", bold=True)
    gpu(sheet, 62, "4g, 3g", [(0, 4, "4g.40gb", ORANGE), (4, 4, "3g.40gb", BLUE)], 580)
    sheet.words(700, 26, "created in this order, both stand", "middle", bold=True)
    sheet.write("layout")


def rules() -> None:
    """The two latency rules."""
    sheet = Sheet(820, 230, "half_slo leaves half of the SLO for waiting, queueing computes what waiting takes")
    for y, name, parts, says in (
        (40, "half_slo",
         ((0.5, "a batch may take half", GREEN), (0.5, "the other half is for forming and waiting", GREY)),
         "the papers' rule: nothing is said of how requests arrive"),
        (140, "queueing",
         ((0.22, "batch", GREEN), (0.18, "forming", ORANGE), (0.42, "waiting, P99 of random arrivals", ORANGE),
          (0.18, "margin", GREY)), "the default: the whole of a request's P99 keeps the SLO times safety"),
    ):
        sheet.words(20, y + 24, name, bold=True)
        x = 120.0
        for share, words, fill in parts:
            sheet.box(x, y, 640 * share, 38, "", fill)
            sheet.words(x + 320 * share, y + 23, words, "middle")
            x += 640 * share
        sheet.words(120, y + 58, says, faint=True)
        sheet.words(766, y + 24, "SLO", bold=True)
    sheet.write("rules")


def master() -> None:
    """The rows of the restricted master."""
    sheet = Sheet(860, 300, "The rows of the restricted master, each with what it sets against what")
    for at, (name, left, sign, right) in enumerate((
        ("types", "GPUs of a type", "≥", "partitions of that type"),
        ("slices", "slices in the partitions", "≥", "patterns and segments on them"),
        ("demand", "rates that patterns and segments carry", "≥", "what replica sets ask"),
        ("choice", "replica sets of a workload", "=", "1"),
        ("limits", "replicas, shares, budgets", "≤", "what the policy allows"),
    )):
        y = 24 + 48 * at
        sheet.words(20, y + 24, name, bold=True)
        sheet.box(110, y, 310, 36, left, BLUE)
        sheet.words(445, y + 24, sign, "middle", bold=True)
        sheet.box(470, y, 310, 36, right, ORANGE)
    sheet.words(20, 286, "minimise the price of the GPUs; pricing adds patterns and replica sets by the rows' duals",
                faint=True)
    sheet.write("master")


def house() -> None:
    """The floors of the package."""
    sheet = Sheet(820, 280, "Each floor imports only from those below it")
    verbs = "solve, verify, simulate, what-if, replan, apply, export, serve, the command line"
    sheet.box(20, 20, 780, 56, f"provision/\n{verbs}", BLUE)
    for x, words in ((20, "formulations/\nexact methods and bounds"), (286, "heuristics/\nfast methods"),
                     (552, "instances/\nfiles, importers, generators")):
        sheet.box(x, 106, 248, 56, words, ORANGE)
        sheet.arrow((x + 124, 76), (x + 124, 106))
        sheet.arrow((x + 124, 162), (x + 124, 192))
    sheet.arrow((286, 134), (268, 134))
    sheet.box(20, 192, 780, 56, "models/\nGPUs, MIG geometry, performance, traffic, problems, plans", GREEN)
    sheet.words(20, 270, "an arrow points to what is imported", faint=True)
    sheet.write("house")


def scarce() -> None:
    """Who goes without, and where GPUs stand."""
    sheet = Sheet(860, 236, "ration serves the highest priority first; places spread GPUs over nodes and zones")
    sheet.words(205, 26, "too few GPUs: who goes without", "middle", bold=True)
    for at, (name, level, asked, part, says) in enumerate((
            ("search", "priority 2", 120, 1.0, "served"), ("tags", "priority 0", 190, 0.7, "cut, not below its floor"),
            ("thumbs", "priority 0", 150, 0.0, "left out: 3 GPUs more bring it back"))):
        y = 46 + 62 * at
        sheet.words(20, y + 14, name, bold=True)
        sheet.words(20, y + 30, level, faint=True)
        sheet.box(110, y, asked, 24, "", PAPER)
        if part:
            sheet.box(110, y, asked * part, 24, "", (BLUE, GREEN)[at])
        sheet.words(110, y + 40, says, faint=True)
    sheet.words(640, 26, "spread over two zones; any one may be lost", "middle", bold=True)
    for at, (zone, nodes) in enumerate((("zone east", (("east-0", ("search", "tags")), ("east-1", ("tags", "")))),
                                        ("zone west", (("west", ("search", "tags")),)))):
        x = 430 + 215 * at
        sheet.box(x, 44, 200, 176, "", GREY)
        sheet.words(x + 100, 62, zone, "middle", faint=True)
        for row, (node, gpus) in enumerate(nodes):
            sheet.box(x + 10, 72 + 72 * row, 180, 64, "", PAPER)
            sheet.words(x + 18, 88 + 72 * row, node, faint=True)
            for number, name in enumerate(gpus):
                fill = BLUE if name == "search" else GREEN if name else PAPER
                sheet.box(x + 18 + 84 * number, 96 + 72 * row, 78, 32, name, fill)
    sheet.write("scarce")


def plan_to_gpus() -> None:
    """From a plan to GPUs."""
    sheet = Sheet(860, 230, "A plan is verified, then applied to GPUs or exported")
    sheet.box(20, 80, 120, 56, "plan\na file", BLUE)
    sheet.box(190, 80, 130, 56, "verify\nholds, or is refused", ORANGE)
    sheet.arrow((140, 108), (190, 108))
    sheet.box(380, 24, 130, 56, "diff\nsteps to the plan", ORANGE)
    sheet.box(560, 24, 130, 56, "apply\njournal, rollback", ORANGE)
    sheet.box(740, 24, 100, 56, "GPUs\nMIG, MPS", GREEN)
    sheet.box(380, 140, 130, 56, "export\nfiles", ORANGE)
    sheet.box(560, 140, 280, 56, "Kubernetes, Helm, KServe, Triton\nRay Serve, or a shell script", GREEN)
    sheet.arrow((320, 100), (350, 100), (350, 52), (380, 52))
    sheet.arrow((320, 116), (350, 116), (350, 168), (380, 168))
    sheet.arrow((510, 52), (560, 52))
    sheet.arrow((690, 52), (740, 52))
    sheet.arrow((510, 168), (560, 168))
    sheet.arrow((790, 80), (790, 108), (445, 108), (445, 80))
    sheet.words(617, 102, "what runs", "middle", faint=True)
    sheet.write("plan_to_gpus")


WAYS = {"auto": ("auto", "#0b5394", "o-"), "assignment-milp": ("plain MILP", "#8a6d00", "s"),
        "pop-4": ("POP, 4 parts", "#5aa469", "o-"), "pop-16": ("POP, 16 parts", "#2e6b3b", "o-"),
        "price-and-round": ("price and round", "#a64ca6", "o-"), "igniter": ("iGniter", "#c45a00", "o-"),
        "parvagpu": ("ParvaGPU", "#c45a00", "o-")}
"""The ways to plan that are drawn side by side: their names, colours and lines."""


def peers() -> None:
    """What each way to plan costs above the best proven bound, by the number of workloads."""
    with (FOLDER.parents[1] / "benchmarks/results/peers.csv").open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    bounds = {row["case"]: max(float(one["bound"] or 0) for one in rows if one["case"] == row["case"]) for row in rows}
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, kind, title in zip(figure.subplots(1, 2), ("free", "isolated"),
                                 ("V100s shared under interference", "A100s cut by MIG"), strict=True):
        for way, (name, colour, line) in WAYS.items():
            costs = {int(row["case"].split("-")[1]): 100 * max(float(row["cost"]) / bounds[row["case"]] - 1, 0)
                     for row in rows if row["method"] == way and row["cost"] and row["case"].startswith(kind)}
            if costs:
                axes.plot(list(costs), list(costs.values()), line, color=colour, label=name, markersize=4,
                          linewidth=2.5 if way == "auto" else 1.2, zorder=3 if way == "auto" else 2)
        axes.set(xscale="log", ylim=(-0.5, 40), xlabel="workloads", title=title)
        axes.set_xticks([12, 120, 1000, 10_000], ["12", "120", "1,000", "10,000"])
        axes.yaxis.set_major_formatter("{x:.0f} %")
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.4)
        axes.legend(frameon=False, fontsize=8)
    figure.supylabel("cost above the proven bound", fontsize=9)
    figure.savefig(FOLDER / "peers.png", dpi=110)


if __name__ == "__main__":
    for draw in (request, mig, rules, master, house, scarce, plan_to_gpus, cluster, peers):
        draw()
