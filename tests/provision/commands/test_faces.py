"""The three faces of a verb are one: command line, jobs over HTTP and Python have the same settings and defaults."""

import inspect

import pytest

import provision
from provision.answers.explain import explain
from provision.cli import parser
from provision.cluster.calibrate import calibrate
from provision.cluster.defragment import defragment
from provision.commands import JOBS, VERBS
from provision.commands.verb import REMOTE, asked, request, requested, verb_class
from provision.exporters.common import render
from provision.models.base.arguments import arguments
from provision.models.plans.simulation_report import SimulationSettings
from provision.replanning.trace import compare_policies

LINES = {"solve": "x", "buy": "x", "compare": "x", "what-if": "x", "review": "x y", "simulate-trace": "x",
         "export": "x y --to shell --out z",
         "ration": "x", "recommend": "x", "defragment": "x", "layout": "x y"}
"""The shortest command line of a verb, if it is not an instance and a plan."""
BODIES = {"export": {"to": "shell"}, "diff": {"status": {}}, "calibrate": {"observed": {}},
          "layout": {"gpu": "x", "profiles": ["y"]}}
PYTHON = {
    "solve": provision.solve, "buy": provision.buy, "compare": provision.compare, "what-if": provision.what_if,
    "explain": explain, "review": provision.review,
    "verify": provision.verify, "simulate": SimulationSettings, "simulate-trace": compare_policies,
    "replan": provision.replan, "export": render, "apply": provision.apply, "recommend": provision.recommend,
    "ration": provision.ration, "defragment": defragment, "calibrate": calibrate, "layout": provision.layout,
}
ELSEWHERE = {
    "compare": {"seed": "the first of seeds"},
    "what-if": {name: "a function of its own" for name in ("breakpoints", "budget", "prices", "prices_of")},
    "simulate-trace": dict.fromkeys(("forecast", "headroom", "every", "delay_s"), "a field of ReplanPolicy")
    | {"seed": "an argument of two_waves"},
    "defragment": {"budget": "at_once"},
    "replan": dict.fromkeys(("rate", "rates_rps"), "a change of the instance") | {"lost": "replan_lost"},
}
"""Settings that Python has in another place."""


def shared(verb):
    """The fields that the command line and jobs have, but for instance and plan."""
    return {name for name, (_, argument) in arguments(verb_class(verb)).items() if not argument.local} - set(REMOTE)


@pytest.mark.parametrize("verb", JOBS)
def test_jobs_and_the_command_line_mean_the_same(verb):
    given = {name: {} if name == "state" else name for name in REMOTE if name in request(verb).model_fields}
    job = asked(verb, request(verb)(verb=verb, **given, **BODIES.get(verb, {})).model_dump(exclude=set(REMOTE)))
    line = requested(verb, parser(verb).parse_args([verb, *LINES.get(verb, "x y").split()]))
    assert set(request(verb).model_fields) == shared(verb) | set(given) | {"verb"}
    only_jobs = {name for name, (_, argument) in arguments(type(line)).items() if argument.flag is None}
    assert only_jobs <= {"instance", "status"}
    for name in shared(verb) - only_jobs - set(BODIES.get(verb, {})):
        assert getattr(job, name) == getattr(line, name), name


@pytest.mark.parametrize("verb", PYTHON)
def test_python_has_the_same_settings_and_defaults(verb):
    parameters = inspect.signature(PYTHON[verb]).parameters
    fields = verb_class(verb).model_fields
    assert shared(verb) - set(parameters) == set(ELSEWHERE.get(verb, {}))
    for name in shared(verb) & set(parameters):
        default = parameters[name].default
        if default is not inspect.Parameter.empty and name not in ("methods", "vary"):  # of other types
            assert default == fields[name].default, name


@pytest.mark.parametrize("verb", JOBS)
def test_jobs_name_no_files(verb):
    """Fields that name files are local, and every field of a job is described."""
    fields = request(verb).model_fields
    assert not {"out", "png", "html", "trace", "journal", "state", "force", "as_json"} & (set(fields) - set(REMOTE))
    assert [name for name, one in fields.items() if name != "verb" and not one.description] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_says_what_it_is(verb):
    """Every option of every verb has a help text."""
    [verbs] = [one for one in parser(verb)._actions if hasattr(one, "choices") and one.choices and verb in one.choices]
    assert [one.dest for one in verbs.choices[verb]._actions if not one.help] in ([], ["format"])
