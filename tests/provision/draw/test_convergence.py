"""Traces of a search: what is recorded, and the picture of it."""

import provision
from provision.cli import main
from provision.draw.convergence import Trace
from provision.models.problem.search import Incumbent


def drawn(instance, *moments):
    """The figure after some (objective, bound), and the trace."""
    result = provision.solve(instance, "greedy", replay=False)
    trace = Trace()
    for objective, bound in moments:
        trace(Incumbent(objective, bound))
    return trace.figure(instance, result), trace


def test_lines_only_improve_and_end_at_the_answer():
    instance = provision.read("parvagpu-s1")
    figure, trace = drawn(instance, (None, 5.12), (40.0, 0.0), (20.48, None), (30.0, 6.0))
    [axes] = figure.axes
    plans, bounds = (line.get_ydata().tolist() for line in axes.lines if len(line.get_ydata()) > 1)
    assert plans[1:] == [40.0, 20.48, 20.48, 10.24] and plans[0] != plans[0]
    assert bounds[:4] == [5.12, 5.12, 5.12, 6.0]
    assert [moment.seconds for moment in trace.moments] == sorted(moment.seconds for moment in trace.moments)


def test_most_throughput_is_bounded_from_above():
    trace = Trace()
    for objective, bound in ((100.0, 900.0), (50.0, 950.0), (200.0, 800.0)):
        trace(Incumbent(objective, bound))
    assert [one[1:] for one in trace.best(provision.read("inss"))] == [(100, 900), (100, 900), (200, 800)]


def test_solve_draws_its_trace(tmp_path):
    path = tmp_path / "trace.png"
    assert main(["solve", "parvagpu-s1", "--time-limit", "20", "--trace", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_another_kind_is_refused_first(tmp_path, capsys):
    assert main(["solve", "parvagpu-s1", "--trace", str(tmp_path / "trace.txt")]) == 2
    assert "end the name in .png or .svg" in capsys.readouterr().err
