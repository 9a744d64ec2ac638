"""Drawings: to scale, complete, safe to look at, and possible for plans that are wrong."""

import io
import os
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from provision.draw.boxes import PALETTE, PATTERNS, details, styles
from provision.draw.drawing import Drawing
from provision.draw.output import number, ranges, shorten
from provision.draw.page import render_page
from provision.draw.picture import MOST_ROWS, draw_picture
from provision.draw.terminal import draw_terminal
from provision.draw.verdict import Standing
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice
from provision.models.plans.result import Replay
from provision.models.problem.instance import Instance

NAMES = ["bert", "densenet121", "densenet169", "[red]stop[/red]", "<script>x</script>", "$a_b$", "模型"]
POINT = {"profile": "1g.10gb", "batch": 4, "processes": 2, "throughput_rps": 200.0, "latency_ms": 40.0}


def replica(workload="bert", rate=100.0, share=1.0):
    return Replica(workload=workload, batch=4, processes=2, sm_share=share, rate_rps=rate)


def piece(profile, start=0, *replicas):
    return Slice(profile=profile, start=start, replicas=replicas or (replica(),))


def gpu(*slices, kind="a100-80gb", mig=True):
    return PlannedGpu(gpu=kind, mig=mig, slices=slices)


def plan(*gpus, method="hand"):
    return Plan(version=1, instance="test", method=method, gpus=gpus)


@pytest.fixture
def instance():
    measured = {
        "version": 1,
        "kind": "measured-segments",
        "name": "own",
        "gpu": "a100-80gb",
        "models": {"bert-large": {"points": [tuple(POINT.values())]}},
    }
    asked = {"model": "bert-large", "slo_ms": 100.0, "rate_rps": 150.0}
    return Instance(
        version=1,
        name="test",
        fleet=[{"gpu": "a100-80gb", "price_per_hour": 4.0}],
        performance=[measured],
        workloads=[{"name": name, **asked} for name in ("bert", "idler")],
    )


@st.composite
def valid_gpus(draw):
    """A GPU with slices that do not overlap; returns it and the slots that are taken."""
    kind = draw(st.sampled_from(["a100-80gb", "a30", "h100-80gb", "t4"]))
    profiles = gpu_type(kind).profiles
    taken, slices = set(), []
    places = [(one, start) for one in profiles.values() for start in one.starts]
    for profile, start in draw(st.lists(st.sampled_from(places), max_size=12)) if places else ():
        slots = set(range(start, start + profile.memory))
        if not slots & taken:
            taken |= slots
            slices.append(draw(placed(profile.name, start)))
    if not slices and draw(st.booleans()):
        return gpu(draw(placed(WHOLE, 0)), kind=kind, mig=False), set(range(slots_of(kind)))
    return gpu(*slices, kind=kind), taken


@st.composite
def placed(draw, profile, start):
    shares = draw(st.lists(st.floats(0.05, 1), max_size=4))
    names = st.sampled_from(NAMES)
    return Slice(
        profile=profile,
        start=start,
        replicas=tuple(replica(draw(names), draw(st.floats(0, 1e6)), share) for share in shares),
    )


def slots_of(kind):
    mig = gpu_type(kind).mig
    return mig.memory_slices if mig else 1


WRONG = plan(
    gpu(piece("3g.40gb", 0), piece("4g.40gb", 2), piece("2g.20gb", 7), piece("1g.10gb", 10**9)),
    gpu(piece("5g.50gb", 3), piece("7g.80gb"), kind="b9000"),
    gpu(piece("1g.10gb", 5), piece(WHOLE), kind="t4", mig=False),
    gpu(piece(WHOLE, 3, replica(share=0.7), replica("densenet121", share=0.9))),
    gpu(Slice(profile="1g.6gb", start=3)),
)


def printed(drawn, instance=None, width=100, encoding="utf-8", **looks):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    draw_terminal(drawn, instance, Console(file=file, width=width, **looks))
    file.flush()
    return file.buffer.getvalue().decode(encoding)


class Reader(HTMLParser):
    """Collects tags, attributes and visible text, and checks that elements nest."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.titles, self.open = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.titles += [value for name, value in attributes if name == "title"]
        assert not {"src", "href"} & {name for name, _ in attributes}
        self.open += [] if tag in ("meta", "br") else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@given(st.lists(valid_gpus(), max_size=4))
@settings(max_examples=60)
def test_boxes_are_to_scale_inside_their_gpu_and_apart(gpus):
    drawing = Drawing(plan(*(one for one, _ in gpus)))
    assert sorted(index for row in drawing.rows for index in row.gpus) == list(range(len(gpus)))
    assert drawing.problems == []
    for row in drawing.rows:
        assert row.lanes == 1 and row.slots == slots_of(row.gpu)
        spans = sorted((one.start, one.start + one.size) for one in row.slices)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
        assert all(0 <= start < end <= row.slots for start, end in spans)
        for box in row.slices:
            check_replicas(box)
        for index in row.gpus:
            assert row.idle_slots == row.slots - len(gpus[index][1])


def check_replicas(box):
    at = box.start
    for one in box.replicas:
        assert one.start == pytest.approx(at)
        at += one.size
    assert at <= box.start + box.size + 1e-9
    if sum(one.sm_share for one in box.replicas) <= 1:
        assert all(one.size == pytest.approx(one.sm_share * box.size) for one in box.replicas)


@given(st.lists(valid_gpus(), max_size=3), st.integers(40, 160))
@settings(max_examples=25)
def test_every_output_takes_every_valid_plan(gpus, width):
    drawn = plan(*(one for one, _ in gpus))
    lines = printed(drawn, width=width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    strips = {cell_len(line.rstrip()) for line in lines if line.rstrip().endswith(("│", "┤", "┐", "┘"))}
    assert len(strips) <= 1
    text = "".join(Reader(render_page(drawn)).text)
    assert all(one.workload in text for *_, one in drawn.replicas())


def test_idle_slots_and_compute_are_counted_for_all_gpus():
    drawing = Drawing(plan(*[gpu(piece("3g.40gb", 0), piece("3g.40gb", 4))] * 2, gpu(piece("1g.10gb", 2))))
    assert [(row.count, row.idle_slots, row.idle_compute) for row in drawing.rows] == [(2, 0, 1), (1, 7, 6)]
    assert drawing.rows[1].idle == ((0, 2), (3, 5))
    assert drawing.summary == "3 GPUs · 7 of 24 memory slots idle · 8 compute slices idle · method hand"


def test_alike_gpus_are_drawn_once_whatever_their_rates():
    alike = [gpu(piece("1g.10gb", 4, replica(rate=rate)), piece("3g.40gb")) for rate in (10.0, 20.0, 15.0)]
    turned = gpu(*reversed(alike[0].slices))
    drawing = Drawing(plan(alike[0], gpu(piece("7g.80gb")), *alike[1:], turned))
    assert [row.gpus for row in drawing.rows] == [(0, 2, 3, 4), (1,)]
    assert [box.rate for _, box in drawing.rows[0].boxes] == ["100", "10-20"]
    assert [(one.replicas, one.rate_rps) for one in drawing.workloads] == [(9, 555)]
    assert "4 x: 0, 2-4" in printed(drawing.plan)
    assert "GPU 0, 2-4" in render_page(drawing.plan)


@pytest.mark.parametrize(("gpus", "mapped"), [(40, False), (41, True), (6000, False)])
def test_a_page_has_a_map_of_many_gpus_but_not_of_thousands(gpus, mapped):
    page = render_page(plan(*[gpu(piece("3g.40gb", 0))] * gpus))
    assert (f"map of {gpus} GPUs" in page) == mapped and len(page) < 10**6


def test_styles_are_stable_and_distinct():
    names = [f"w{index}" for index in range(len(PALETTE) * PATTERNS)]
    assert len(set(styles(names).values())) == len(names)
    assert styles(names) == styles(reversed(names))
    assert list(styles(names)) == names


def test_predictions_prices_and_slack_come_from_the_instance(instance):
    drawing = Drawing(plan(gpu(piece("1g.10gb"), piece("2g.20gb", 2))), instance)
    known, unknown = (box for _, box in drawing.rows[0].boxes)
    assert known.utilisation == pytest.approx(100 / 200) and unknown.utilisation is None
    assert "4.00 $ per hour" in drawing.summary
    served = Drawing(plan(gpu(piece("1g.10gb"))), instance).workloads
    assert [one.name for one in served] == ["bert", "idler"]
    assert served[0].rate_slack == pytest.approx(1 - 150 / 200)
    assert served[0].latency_slack == pytest.approx(1 - 40 / 50)
    assert served[1].replicas == 0 and served[1].rate_slack is None


def test_zero_utilisation_is_shown(instance):
    drawn = plan(gpu(piece("1g.10gb", 0, replica(rate=0.0))))
    assert "0%" in printed(drawn, instance, width=140)


@pytest.mark.parametrize("width", [20, 80, 140])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_terminal_shows_plans_that_are_wrong(width, encoding):
    text = printed(WRONG, width=width, encoding=encoding)
    if width > 20:
        for problem in (
            "GPU 0: 4g.40gb at 2 overlaps",
            "GPU 0: 2g.20gb at 7 reaches past",
            "GPU 0: 1g.10gb at 1000000000 reaches past",
            "GPU 1: unknown GPU type b9000",
            "GPU 1: there is no profile 5g.50gb",
            "GPU 2: there is no profile 1g.10gb",
        ):
            assert problem in text


def test_wrong_plans_stay_inside_their_gpus():
    for row in Drawing(WRONG).rows:
        assert all(0 <= one.start < one.start + one.size <= row.slots for one in row.slices)
        for lane in range(row.lanes):
            spans = sorted((one.start, one.start + one.size) for one in row.slices if one.lane == lane)
            assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_terminal_without_colour_names_workloads_and_marks_idle_slots():
    text = printed(plan(gpu(piece("3g.40gb", 4, replica("densenet169")))), width=80)
    assert "\x1b" not in text
    assert "densenet169" in text and "·····" in text and "3g.40gb" in text and "idle" in text


def test_terminal_takes_markup_and_control_characters_as_text():
    drawn = plan(gpu(piece("7g.80gb", 0, replica("[red]stop[/red]"))), method="\x1b[31m[bold]x\nnew")
    text = printed(drawn, width=120, force_terminal=False)
    assert text.count("[red]stop[/red]") == 2
    assert "[bold]x" in text and "\x1b" not in text


def test_page_is_self_contained_and_escapes_what_users_write(instance):
    drawn = plan(gpu(piece("7g.80gb", 0, replica("<script>alert(1)</script>"))), method="</title><img src=x>")
    bad = SimpleNamespace(kind="rate", gpu=0, slice=None, workload="<i>", message="<b>too little</b>")
    reader = Reader(render_page(drawn, instance, SimpleNamespace(ok=False, violations=[bad], predictions=())))
    assert not {"script", "img", "link", "i"} & set(reader.tags)
    text = "".join(reader.text)
    assert "<b>too little</b>" in text and "1 violation" in text and "workload <i>" in text
    assert any("<script>alert(1)</script>" in title for title in reader.titles)
    assert "idler" in text


def test_page_says_when_a_plan_holds():
    page = render_page(plan(gpu(piece("7g.80gb"))), report=SimpleNamespace(ok=True, violations=[], predictions=()))
    assert "holds" in page and "not valid" not in page.lower()


def test_page_takes_plans_that_are_wrong(instance):
    text = "".join(Reader(render_page(WRONG, instance)).text)
    assert "overlaps another slice" in text and "not in the instance" in text


@pytest.mark.parametrize("drawn", [plan(), WRONG, plan(gpu(piece("7g.80gb", 0, *map(replica, NAMES))))])
@pytest.mark.parametrize("suffix", [".png", ".SVG"])
def test_pictures_are_written_whole(tmp_path, recwarn, drawn, suffix):
    path = tmp_path / f"plan{suffix}"
    draw_picture(drawn, path)
    if suffix == ".png":
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 1000
    else:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert os.listdir(tmp_path) == [path.name]
    assert not recwarn.list


def test_empty_plans_are_drawn():
    assert "0 GPUs" in printed(plan()) and "0 GPUs" in render_page(plan())


def test_pictures_of_the_same_plan_are_the_same(tmp_path, instance):
    for name in ("one.svg", "two.svg"):
        draw_picture(WRONG, tmp_path / name, instance)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_pictures_never_replace_a_file_unasked(tmp_path):
    path = tmp_path / "plan.svg"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        draw_picture(plan(), path)
    assert path.read_text() == "mine"
    draw_picture(plan(), path, force=True)
    assert "svg" in path.read_text()


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "file/plan.png"])
def test_pictures_refuse_what_they_cannot_write(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(InputError):
        draw_picture(plan(), tmp_path / name)
    assert os.listdir(tmp_path) == ["file"]


def test_pictures_of_many_gpus_count_what_is_not_drawn(tmp_path):
    many = plan(*(gpu(piece("7g.80gb", 0, replica(f"w{index}"))) for index in range(MOST_ROWS + 5)))
    draw_picture(many, tmp_path / "many.svg")
    assert "and 5 more GPUs, not drawn" in (tmp_path / "many.svg").read_text()


def test_an_overview_counts_gpus_with_the_same_models(instance):
    """Many different GPUs are drawn by model, the most frequent first; ranges tell what differs."""
    names = [f"w{at}" for at in range(9)]
    known = instance.replace(workloads=[{"name": name, "model": "bert-large", "slo_ms": 100.0, "rate_rps": 150.0}
                                        for name in names])
    alike = [gpu(piece("1g.10gb", 0, Replica(workload=name, batch=4 + at, processes=2, rate_rps=100.0 + at)))
             for at, name in enumerate(names[:8])]
    other = gpu(piece("1g.10gb", 0, replica(names[8])), piece("1g.10gb", 1, replica(names[0])))
    drawing = Drawing(plan(other, *alike), known, most=3)
    assert [row.count for row in drawing.rows] == [8, 1] and drawing.overview
    (_, box), = drawing.rows[0].boxes
    assert (box.workload, box.batch, box.processes, box.rate) == ("bert-large", "4-11", "2", "100-107")
    served, = drawing.workloads
    assert (served.name, served.replicas, served.processes) == ("bert-large", 10, 20)
    assert served.rate_rps == pytest.approx(sum(range(100, 108)) + 200) and "9 workloads" in drawing.summary
    page = render_page(plan(other, *alike), known)
    assert not Drawing(plan(other, *alike), known).overview and "w8" in page


def test_short_words():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges([0, 1, 2, 5, 7, 8], most=1) == "0-2, …"
    numbers = [number(value) for value in (0, 0.123456, 99.94, 1114.2, 1e12)]
    assert numbers == ["0", "0.123", "99.9", "1,114", "1e+12"]
    assert shorten("densenet121", lambda text: len(text) <= 7) == "den…121"
    assert shorten("densenet121", lambda text: len(text) <= 1) == ""


def test_every_box_names_its_share_of_the_sms(tmp_path):
    shares = (0.075, 0.125, 0.45)
    boxes = [one for row in Drawing(plan(gpu(piece(WHOLE, 0, *(replica(share=share) for share in shares)),
                                             kind="v100", mig=False))).rows for _, one in row.boxes]
    assert [details(one)[0].split(" · ")[0] for one in boxes] == ["SM 7.5%", "SM 12.5%", "SM 45%"]
    assert [details(one)[-2] for one in boxes] == ["7.5%", "12.5%", "45%"]
    assert "SM%" in Drawing(plan(gpu(piece(WHOLE, 0, replica(share=0.5)), kind="v100", mig=False))).key
    assert "SM%" not in Drawing(plan(gpu(piece("1g.10gb")))).key


def test_pictures_and_pages_name_load_proof_and_p99(instance, tmp_path):
    drawn = plan(gpu(piece("1g.10gb")))
    standing = Standing("auto (its step greedy)", "GPUs", 1.0, 1.0, True, {"bert": 1.5}, 30.0)
    assert standing.lines == [
        "Proven: no plan takes fewer than 1 GPUs.",
        "Replayed for 30 s of arrivals: 1 of 1 workloads miss their SLO, the worst P99 is 150% of its SLO.",
    ]
    page = render_page(drawn, instance, standing=standing)
    assert "method auto (its step greedy)" in page and "load 50%" in page and 'class="p99 late"' in page
    draw_picture(drawn, tmp_path / "plan.svg", instance, standing=standing)
    assert (tmp_path / "plan.svg").stat().st_size > 1000
    rehearsed = Replay(20.0, 3, 0, "bert", 99.0, 1.0004, ("bert",))
    before = standing._replace(p99_over_slo={}, replayed_s=None, rehearsed=rehearsed)
    assert before.lines[1] == (
        "Replayed for 3 x 20 s of arrivals: 1 workload late, the worst P99 is 100.1% of its SLO (bert)."
    )
    assert before.moods[before.lines[1]] is False
    open_gap = standing._replace(bound=0.5, proved=False, p99_over_slo={"bert": float("inf")})
    assert "a gap of 50.0%" in open_gap.lines[0] and "dropped" in render_page(drawn, instance, standing=open_gap)
