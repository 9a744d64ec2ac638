"""``provision report``, pictures with their proof, plans from files in ``compare``, tables inside the terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from provision.cli import main
from provision.draw.convergence import _to_the_end
from provision.draw.output import GUTTER, _beside
from provision.draw.sweep import sweep_figure
from provision.instances.read import read, read_plan, write
from provision.models.base.errors import InputError
from provision.sweeps.breakpoints import Breakpoint


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["solve", "parvagpu-s1", "--method", "greedy", "--out", str(path), "--no-replay"]) == 0
    return path


def test_one_page_has_everything_and_refers_to_nothing(tmp_path, capsys):
    out = tmp_path / "report.html"
    line = f"report parvagpu-s1 --out {out} --methods igniter --vary rate=1 --seconds 2 --time-limit 3"
    assert main([*line.split(), "--method", "master"]) == 0
    page = out.read_text()
    for part in ("Proven: no plan costs less.", "Other methods", "How the search went", "What if", "Replayed",
                 "As it is:", "With 1.2 times the traffic", "igniter: method igniter cannot plan", "slices_destroyed",
                 "P99 replayed, of SLO"):
        assert part in page, part
    assert page.count("<svg") == 3 and page.count("<!doctype html>") == 1
    assert not re.search(r"""(src|href)=["'](?!#)""", page.replace("xlink:href", "href"))
    assert main(line.split()) == 2
    assert "exists" in capsys.readouterr().err


def test_shared_gpus_are_replanned_too(tmp_path):
    out = tmp_path / "report.html"
    words = "--method igniter --methods greedy --vary rate=1 --seconds 1 --time-limit 3 --rate 0.9"
    assert main(["report", "igniter-motivation", "--out", str(out), *words.split()]) == 0
    page = out.read_text()
    assert page.count("Verified: the plan holds.") == 2 and "replicas_started" in page


def test_a_report_without_a_plan_says_so(tmp_path, capsys):
    path = tmp_path / "none.yaml"
    content = read("parvagpu-s1").model_dump(mode="json")
    content["fleet"][0]["count"] = 0
    path.write_text(json.dumps(content))
    assert main(["report", str(path), "--out", str(tmp_path / "x.html"), "--time-limit", "5"]) in (1, 3)
    assert "nothing to report" in capsys.readouterr().out
    assert not (tmp_path / "x.html").exists()


def test_show_draws_bound_and_replay(plan, tmp_path, capsys):
    html = tmp_path / "plan.html"
    pictures = ["--html", str(html), "--png", str(tmp_path / "plan.png")]
    assert main(["show", str(plan), *pictures, "--prove", "5", "--replay", "3"]) == 0
    printed, page = " ".join(capsys.readouterr().out.split()), html.read_text()
    for text in (printed, page):
        assert "Proven: no plan costs less than 10.24 $ per hour" in text
        assert "Replayed for 3 s of arrivals" in text
    assert page.count('class="p99') == 6


def test_show_cannot_prove_without_an_instance(plan, tmp_path, capsys):
    other = tmp_path / "other.json"
    write(read_plan(plan).model_copy(update={"instance": "elsewhere"}), other)
    assert main(["show", str(other), "--prove", "5"]) == 2
    assert "name its file before the plan" in capsys.readouterr().err


def test_drawings_tell_how_to_read_them(tmp_path, capsys):
    html = tmp_path / "plan.html"
    assert main(["solve", "parvagpu-s1", "--time-limit", "5", "--html", str(html), "--no-replay"]) == 0
    page = html.read_text()
    for told in (capsys.readouterr().out, page):
        assert "Plan for parvagpu-s1" in told and " · method auto (its step " in told
    assert page.index("Each row is a GPU") < page.index('class="gpus"') and "<title>Plan for parvagpu-s1" in page


def test_compare_takes_plans_from_files_and_refused_methods_one_line(plan, capsys):
    line = ["compare", "parvagpu-s1", "--methods", "greedy,igniter", "--plan", str(plan)]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert sum("igniter" in text for text in printed.splitlines()) == 1
    assert main([*line, "--json"]) == 0
    given, greedy, refused = json.loads(capsys.readouterr().out)
    assert (given["method"], given["status"], given["objective"]) == (str(plan), "holds", greedy["objective"])
    assert refused["status"] == "not applicable"


def test_deployment_maps_of_parvagpu_are_plans(plan, tmp_path, capsys):
    folder = tmp_path / "map"
    assert main(["export", str(plan), "--to", "parvagpu", "--out", str(folder)]) == 0
    path = str(folder / "deployment.csv")
    assert main(["verify", "parvagpu-s1", path]) == 0
    assert main(["simulate", "parvagpu-s1", path, "--seconds", "1", "--json"]) in (0, 1)
    capsys.readouterr()
    assert main(["compare", "parvagpu-s1", "--methods", "greedy", "--plan", path, "--json"]) == 0
    given, greedy = json.loads(capsys.readouterr().out)
    assert (given["status"], given["gpus"]) == ("holds", greedy["gpus"])


def test_steps_stand_at_breakpoints_and_on_the_sure_side():
    instance = read("parvagpu-s1")
    rows = [{"rate": rate, "objective": cost, "bound": cost, "gpus": gpus}
            for rate, cost, gpus in ((1.0, 10.0, 2), (2.0, 15.0, 3), (3.0, 15.0, 3))]
    for breakpoints, start in (([], 1.0), ([Breakpoint(1.4, 1.5, {"a": 2}, {"a": 3})], 1.5)):
        figure = sweep_figure(instance, rows[0], {"rate": [1.0, 2.0, 3.0]}, rows, {"rate": breakpoints})
        axes = figure.axes[0]
        steps = axes.lines[0]
        assert steps.get_drawstyle() == "steps-post"
        assert list(steps.get_xdata())[1] == start and list(steps.get_ydata()) == [10.0, 15.0, 15.0, 15.0]
        assert [text.get_text() for text in axes.texts] == ["2 GPUs", "3 GPUs"]


def test_a_picture_has_every_step_that_the_words_have():
    """Two breakpoints between two points are two steps."""
    rows = [{"rate": rate, "objective": cost, "bound": cost, "gpus": gpus} for rate, cost, gpus in ((1, 10.0, 2),
                                                                                                    (2, 20.0, 4))]
    found = [Breakpoint(1.1, 1.2, {"a": 2}, {"a": 3}, 15.0), Breakpoint(1.6, 1.7, {"a": 3}, {"a": 4}, 20.0)]
    axes = sweep_figure(read("parvagpu-s1"), rows[0], {"rate": [1.0, 2.0]}, rows, {"rate": found}).axes[0]
    assert list(axes.lines[0].get_xdata()) == [1, 1.2, 1.7, 2]
    assert list(axes.lines[0].get_ydata()) == [10.0, 15.0, 20.0, 20.0]
    assert [text.get_text() for text in axes.texts] == ["2 GPUs", "3 GPUs", "4 GPUs"]


def test_grids_hold_numbers():
    rows = [{"rate": x, "slo": y, "objective": x * y, "bound": None, "gpus": 1}
            for x in np.arange(1.0, 21.0) for y in np.arange(1.0, 4.0)]
    values = {"rate": list(np.arange(1.0, 21.0)), "slo": [1.0, 2.0, 3.0]}
    figure = sweep_figure(read("parvagpu-s1"), rows[0], values, rows, {})
    assert len(figure.axes[0].texts) == 60
    assert figure.get_size_inches()[0] >= 10


def test_traces_end_with_their_last_window():
    assert _to_the_end([1, 3]).tolist() == [1, 3, 3]


def test_columns_that_do_not_fit_go_below():
    widths = [10, 20, 30, 5, 5]
    groups = _beside(widths, 60)
    assert groups == [[0, 1], [0, 2, 3], [0, 4]]
    for group in groups:
        assert sum(widths[at] + GUTTER for at in group) <= 60
    assert _beside(widths, 10_000) == [[0, 1, 2, 3, 4]]


def test_tables_stay_inside_the_terminal():
    head, tail = pty.openpty()
    code = "import fcntl, struct, termios; fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 80, 0, 0)); " \
           "from provision.cli import main; main(['gpus'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=tail, cwd=Path(__file__).parents[3]) as running:
        os.close(tail)
        chunks = []
        while True:
            try:
                chunk = os.read(head, 65536)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
        assert running.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(chunks).decode())
    assert max(len(line.rstrip("\r")) for line in text.split("\n")) <= 80
    assert "h100-80gb" in text and "memory_gib" in text


def test_bad_reports_are_one_line(tmp_path):
    for words in (["--methods", "greedyy"], ["--vary", "rate"], ["--vary", "rate=a:b:c"]):
        assert main(["report", "parvagpu-s1", "--out", str(tmp_path / "x.html"), *words]) == 2
    with pytest.raises(InputError):
        read("no-such-instance")


def test_a_replay_that_is_refused_is_told_on_the_page(tmp_path, capsys):
    page = tmp_path / "page.html"
    words = f"report parvagpu-s1 --method greedy --methods igniter --vary rate=1 --seconds 1e6 --out {page}"
    assert main(words.split()) == 0 and "can be replayed at once" in page.read_text()
