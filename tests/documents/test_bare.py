"""What users read first is so where only the wheel is installed: the README's blocks, and the four users' stories."""

import re
import resource
import shlex

import pytest
from packaged import ROOT, Bare, bare_environment

pytest.importorskip("setuptools", minversion="77", reason="packages are built by setuptools 77 or later")
README = (ROOT / "README.md").read_text()
STORIES = sorted((ROOT / "examples/stories").iterdir())
MEASURED = "batch,latency_ms\n1,4.1\n8,11.8\n32,39.0\n"
EXTRA = r"error: (?:\S+: )?\w+ is not installed; pip install 'gpu-provision\[\w+\]'\n"
SLACK = 3
"""How many times longer than it tells a story may take on other machines."""


def _section(title):
    return README.partition(f"## {title}\n")[2].partition("\n## ")[0]


def _block(language):
    return re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)[1]


def _commands(text):
    """The command lines of an indented block, each without what it is said to do."""
    return [re.split(r"\s{2,}", line)[0] for line in re.findall(r"^    (provision .+)$", text, re.MULTILINE)]


LEAN, WITH_EXTRAS = map(_commands, _section("What else it does").split("These need nothing but"))


@pytest.fixture(scope="module")
def bare():
    return Bare(bare_environment())


@pytest.fixture(scope="module")
def folder(bare, tmp_path_factory):
    """A folder in which the README's instance has been planned and verified by its own commands."""
    folder = tmp_path_factory.mktemp("readme")
    text = _block("yaml")
    (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
    (folder / "mine.csv").write_text(MEASURED)
    solve, verify = _commands(_section("One plan"))
    for command in (solve, verify):
        ran = bare.run(*shlex.split(command), folder=folder)
        assert ran.returncode == 0, ran.stderr
        assert "holds" in ran.stdout or ran.stdout.splitlines()[0] == _block("text").splitlines()[0]
    return folder


@pytest.mark.parametrize("command", LEAN)
def test_the_readme_keeps_its_word_without_any_extra(command, bare, folder):
    ran = bare.run(*shlex.split(command), folder=folder, answers="\n" * 20)
    assert ran.returncode == 0 and ran.stdout, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("command", WITH_EXTRAS)
def test_what_needs_an_extra_says_which_in_a_line(command, bare, folder):
    ran = bare.run(*shlex.split(command), folder=folder)
    assert ran.returncode == 2 and re.fullmatch(EXTRA, ran.stderr), ran.stderr


def test_the_readme_s_python_runs(bare, tmp_path):
    ran = bare.run("python", "-c", _block("python"), folder=tmp_path)
    assert ran.returncode == 0 and ran.stdout.startswith("optimal"), ran.stderr


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_runs_in_its_time_and_edits_no_file_of_the_package(story, bare, tmp_path):
    told_s = float(re.search(r"about (\d+) s of a core", story.read_text())[1])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with bare.untouched():
        ran = bare.run("sh" if story.suffix == ".sh" else "python", str(story), folder=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, ran.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SLACK * told_s


def test_there_are_four_users():
    assert [path.stem for path in STORIES] == [
        "capacity_planner", "language_models", "platform_engineer", "researcher"]
