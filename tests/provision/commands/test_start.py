"""What is imported: solvers, compilers and plotting only by what uses them, and one face whatever comes first."""

import argparse
import subprocess
import sys

import pytest

import provision
from provision.cli import main, parser
from provision.commands import GROUPS, VERBS
from provision.instances.ledger.ledger import ledger

HEAVY = {"matplotlib", "networkx", "numba", "ortools", "pandas", "pulp", "scipy.optimize", "scipy.special"}
MAIN = """
import sys
from provision.cli import main, parser
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture
def loaded(tmp_path):
    """The heavy modules that a command line loads in a fresh process."""
    provision.write(ledger()["parvagpu-s1"].plan, tmp_path / "plan.json")

    def command(line):
        ran = subprocess.run([sys.executable, "-c", MAIN, *line.split()], cwd=tmp_path, capture_output=True, text=True)
        assert "provision.cli" in ran.stderr.split()
        return HEAVY & set(ran.stderr.split())

    return command


@pytest.mark.parametrize("line", [
    "--help", "gpus", "instances", "show plan.json", "show plan.json --html plan.html",
    "status", "diff plan.json", "assert plan.json", "apply plan.json", "rollback",
    "export plan.json --to shell --out out",
])
def test_verbs_that_solve_nothing_load_no_solver(line, loaded):
    assert loaded(line) == set()


def test_a_verdict_loads_what_replays_need_and_no_solver(loaded):
    assert loaded("verify parvagpu-s1 plan.json") <= {"numba", "scipy.special"}


def solved(**options):
    """The heavy modules that a solve loads in a fresh process. (The command line solves in a process of its own.)"""
    code = f"import provision, sys; provision.solve(**{options!r}); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return HEAVY & set(ran.stdout.split())


def test_a_solve_without_cp_sat_does_not_load_it():
    """OR-tools loads pandas: together they take longer than most small solves."""
    assert solved(instance="parvagpu-s1") & {"ortools", "pandas", "matplotlib"} == set()


def test_what_is_used_is_loaded(loaded):
    """The names above are those that would be found."""
    assert "matplotlib" in loaded("show plan.json --png plan.png")
    apart = {"matplotlib", "networkx", "pulp"}
    assert solved(instance="igniter-motivation", method="assignment-cpsat") >= HEAVY - apart


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_declares_arguments(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: provision {verb} [-h]")


def test_alone_and_asked_for_help_it_lists_the_verbs_by_group(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert main([]) == 0 and capsys.readouterr().out == listed
    with pytest.raises(SystemExit):
        main(["help"])
    assert capsys.readouterr().out == listed
    assert all(f"\n{group}:\n" in listed for group in GROUPS) and all(f"\n  {verb} " in listed for verb in VERBS)
    assert max(map(len, listed.splitlines())) <= 80


def test_help_of_a_verb(capsys):
    with pytest.raises(SystemExit):
        main(["help", "verify"])
    assert capsys.readouterr().out.startswith("usage: provision verify [-h] ")
    assert main(["help", "verfy"]) == 2
    assert "did you mean 'verify'?" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_verbs_and_options(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in (*VERBS, "time-limit"))


def test_every_name_of_the_face_is_there():
    assert set(provision.__all__) <= set(dir(provision))
    assert all(getattr(provision, name).__name__ == name for name in provision.__all__)
    with pytest.raises(AttributeError, match="no attribute 'resolve'"):
        provision.resolve  # noqa: B018


WITHOUT_JSON = {"schema", "serve", "help", "completion", "init"}
"""What prints JSON anyway, runs on, prints text for a shell or for people, or asks questions."""


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_JSON])
def test_every_verb_answers_in_json(verb):
    [action] = [one for one in parser(verb)._actions if isinstance(one, argparse._SubParsersAction)]
    one = action.choices[verb]
    formats = [inner for inner in one._actions if isinstance(inner, argparse._SubParsersAction)]
    takers = formats[0].choices.values() if formats else [one]
    assert all("--json" in taker._option_string_actions for taker in takers)
