"""Public functions take instances, plans and states as objects or by path; anything else is refused in one line."""

import inspect
import re

import pytest
from tiny_plans import BIG, SMALL, make_instance, plan

import provision
from provision import InputError
from provision.applier import operations
from provision.cluster.state import State

CALLS = {
    "Planner": lambda instance: provision.Planner(instance).instance,
    "apply": lambda instance, plan: provision.apply(instance, plan),
    "buy": lambda instance: provision.buy(instance),
    "compare": lambda instance: provision.compare(instance, "greedy").runs[0]["instance"],
    "export": lambda instance, plan: provision.export(plan, "shell", "out", instance, force=True),
    "ration": lambda instance: provision.ration(instance, budget_per_hour=4.0).levels,
    "read": lambda instance: provision.read(instance),
    "read_plan": lambda plan: provision.read_plan(plan),
    "read_state": lambda state: provision.read_state(state),
    "recommend": lambda state: provision.recommend(state),
    "replan": lambda instance, plan: provision.replan(instance, plan, others=[plan]).plan,
    "review": lambda instance, plan: provision.review(instance, instance, plan, plan).verdict,
    "simulate": lambda instance, plan: provision.simulate(instance, plan, seconds=1.0),
    "solve": lambda instance, plan: provision.solve(instance, start=plan).plan,
    "verify": lambda instance, plan: provision.verify(instance, plan),
    "what_if": lambda instance: provision.what_if(instance, {"rate": [1.0]})[0]["status"],
}
TAKEN = [(name, what) for name, call in CALLS.items() for what in inspect.signature(call).parameters]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder of the test's own, and a machine whose GPUs ``apply`` leaves alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operations, "apply", lambda plan, *settings: plan)


@pytest.fixture
def given(request, tmp_path):
    """What the function takes, by name."""
    instance = make_instance()
    state = State(name="s", sources=("test",), gpus=(), instance=instance)
    objects = {"instance": instance, "plan": plan(BIG, SMALL), "state": state}
    return {what: objects[what] for name, what in TAKEN if name == request.getfixturevalue("name")}


def _outcome(name, given):
    """What a function returns, or its complaint."""
    try:
        return CALLS[name](**given)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", CALLS)
def test_a_path_is_as_good_as_an_object(name, given, tmp_path):
    for what, one in given.items():
        provision.write(one, f"{what}.yaml")
    expected = _outcome(name, given)
    assert _outcome(name, {what: f"{what}.yaml" for what in given}) == expected
    assert _outcome(name, {what: tmp_path / f"{what}.yaml" for what in given}) == expected


@pytest.mark.parametrize(("name", "what"), TAKEN)
def test_anything_else_is_refused_in_one_line(name, what, given):
    assert re.fullmatch(f"{what}: should be an? .* or a path, not int", _outcome(name, given | {what: 3}))


def test_only_records_are_written():
    with pytest.raises(InputError, match="record: should be an Instance or a Plan, not str"):
        provision.write("shop.yaml", "copy.yaml")


def test_every_public_function_that_takes_one_is_called_here():
    functions = [one for one in provision.__all__ if inspect.isfunction(getattr(provision, one))]
    taking = {one for one in functions for taken in inspect.signature(getattr(provision, one)).parameters.values()
              if re.search(r"\b(Instance|Plan|State)\b", str(taken.annotation))}
    assert taking <= set(CALLS)
