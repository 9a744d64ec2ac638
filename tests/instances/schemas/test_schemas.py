"""The published JSON Schemas say what the readers accept."""

import json
from importlib.resources import files

import pytest
import yaml
from jsonschema import Draft202012Validator

from provision import read, solve
from provision.instances.read import shipped_instances
from provision.instances.schemas.write import FOLDER, KINDS, schema, text
from provision.models.performance.catalogue import shipped_performance


def accepts(kind, content):
    """Whether a schema accepts plain content."""
    return Draft202012Validator(schema(kind)).is_valid(content)


def shipped(package, folder, name):
    """The content of a shipped file."""
    return yaml.safe_load((files(package) / folder / f"{name}.yaml").read_text())


@pytest.fixture(scope="module")
def plan():
    """A solved plan as plain content."""
    return solve(read("parvagpu-s1"), "greedy").plan.model_dump(mode="json")


@pytest.mark.parametrize("kind", KINDS)
def test_published_files_are_up_to_date(kind):
    """The published file is what ``python -m provision.instances.schemas.write`` would write, and a valid schema."""
    published = (FOLDER / f"{kind}.schema.json").read_text()
    assert published == text(kind)
    Draft202012Validator.check_schema(json.loads(published))


@pytest.mark.parametrize("name", shipped_instances())
def test_shipped_instances_validate(name):
    """Every shipped instance satisfies the schema; with an unknown field at any level it does not."""
    content = shipped("provision.instances", "data", name)
    assert accepts("instance", content)
    assert not accepts("instance", content | {"colour": "red"})
    content["workloads"][0]["colour"] = "red"
    assert not accepts("instance", content)


@pytest.mark.parametrize("name", shipped_performance())
def test_shipped_performance_validates(name):
    """Every shipped performance file satisfies the schema; with an unknown field it does not."""
    content = shipped("provision.models.performance", "data", name)
    assert accepts("performance", content)
    assert not accepts("performance", content | {"colour": "red"})


def test_a_solved_plan_validates(plan):
    """A solved plan satisfies the schema; with an unknown field, a missing one or a wrong value it does not."""
    assert accepts("plan", plan)
    assert not accepts("plan", plan | {"colour": "red"})
    assert not accepts("plan", plan | {"version": 2})
    del plan["gpus"][0]["slices"][0]["profile"]
    assert not accepts("plan", plan)


def test_an_instance_with_performance_inside_validates():
    """Performance data may stand in the instance itself, alone or in a list with names."""
    content = shipped("provision.instances", "data", "parvagpu-s1")
    data = shipped("provision.models.performance", "data", "parvagpu-a100")
    assert accepts("instance", content | {"performance": data})
    assert accepts("instance", content | {"performance": [data, "igniter-v100"]})
    assert not accepts("instance", content | {"performance": 7})
