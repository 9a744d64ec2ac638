"""The criteria of the papers' benchmarks, and the result files that they write."""

import shutil
import subprocess
import sys
from pathlib import Path

import gpulets_rates
import moved
import parvagpu_figures
import pytest
import results

import provision

ARTEFACT = Path(__file__).resolve().parents[3] / "shared/data/parvagpu"


def test_the_largest_rate_does_not_depend_on_where_the_search_begins():
    """Neither a lower rate nor a single seed that fails ends the search; the median of the seeds decides."""
    steps = [
        (1.0, [0.0, 0.0, 0.0], True), (2.0, [0.5, 0.4, 0.0], True), (3.0, [0.9, 0.01, 0.0], False),
        (4.0, [0.0, 0.5, 0.5], False),
    ]
    names = dict(zip(gpulets_rates.FOUND, gpulets_rates.largest(steps), strict=True))
    assert names == {"rate": 3.0, "low": 3.0, "high": 4.0, "below": 2, "fail": 1, "verified": 2.0, "scheduled": 4.0}
    assert gpulets_rates.largest([]) == [0.0] * 3 + [0] * 2 + [0.0] * 2


def test_result_files_are_written_outside_a_git_checkout(tmp_path):
    (tmp_path / "benchmarks/papers").mkdir(parents=True)
    shutil.copy(results.__file__, tmp_path / "benchmarks/papers")
    code = "import results; results.write('.', 'one', ('a',), [(1,)])"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "benchmarks/papers", check=True,
                   env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    found = results.read(tmp_path / "benchmarks/papers/one.csv")
    assert found.header["commit"].endswith("not a git checkout") and found.rows == [{"a": "1"}]


def test_seeds_of_several_calls_are_told_as_runs(tmp_path):
    for seeds in ((5, 0, 1, 2), (3, 9, 1), ()):
        results.Tally(tmp_path, "one", ("what", "count")).write(seeds)
    assert results.read(tmp_path / "one.csv").header["seeds"] == "0-3 5 9"


def test_a_cell_that_moved_is_named():
    """Rounding, columns of times and rows of times are no difference; a number, a text and a missing row are."""
    def table(*rows):
        return results.Result({}, ["what", "value", "s"], [dict(zip(("what", "value", "s"), row, strict=True))
                                                           for row in rows])

    old = table(("a", "1", "5"), ("b", "x", "5"), (moved.TIMED[0], "3", "5"))
    same = table(("a", "1.00001", "9"), ("b", "x", "1"), (moved.TIMED[0], "7", "5"))
    assert not list(moved.differences(old, same, ("s",)))
    found = list(moved.differences(old, table(("a", "1.1", "5"), ("b", "y", "5"), (moved.TIMED[0], "3", "6")), ()))
    assert [line.split(":")[0].strip() for line in found] == ["a, 1", "b, x"]
    assert len(list(moved.differences(old, table(("a", "1", "5")), ()))) == 1


def test_a_deployment_map_is_compared_segment_by_segment(tmp_path):
    """The map of our own plan has all of its segments; one with another batch has one fewer, and ours has one more."""
    instance = provision.read("parvagpu-s1")
    result = provision.solve(instance, "parvagpu")
    segments = parvagpu_figures.segments_of(result.plan)
    provision.export(result.plan, "parvagpu", tmp_path / "maps", instance)
    path = tmp_path / "deployment/SLO1/SLO1_ParvaGPU_deploy.csv"
    path.parent.mkdir(parents=True)
    header, first, *rest = (tmp_path / "maps/deployment.csv").read_text().splitlines()
    path.write_text("\n".join([header, first, *rest]))
    assert parvagpu_figures.mapped(tmp_path, 1, instance) == (segments.total(), segments.total(), 0)
    cells = first.split(",")
    path.write_text("\n".join([header, ",".join([*cells[:5], "1", *cells[6:]]), *rest]))
    assert parvagpu_figures.mapped(tmp_path, 1, instance) == (segments.total(), segments.total() - 1, 1)


@pytest.mark.skipif(not (ARTEFACT / "deployment").is_dir(), reason="the authors' deployment maps are not in shared/")
@pytest.mark.parametrize(("number", "missing"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 2), (6, 0)])
def test_our_plans_are_the_authors_maps(number, missing):
    """Segment for segment; the two of S5 that we lack are surplus of their program."""
    instance = parvagpu_figures.scenario(ARTEFACT, number)
    segments, shared, more = parvagpu_figures.mapped(ARTEFACT, number, instance)
    assert (segments - shared, more) == (missing, 0)
