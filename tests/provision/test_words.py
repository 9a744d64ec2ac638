"""Names use the words of the glossary: no retired word names anything in the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RETIRED = {"content": "pattern", "contents": "patterns", "cover": "replica_set", "covers": "replica_sets",
           "supply": "pool", "supplies": "pools", "knot": "breakpoint", "knots": "breakpoints", "menu": "choices",
           "menus": "choices", "promise": "rated pattern", "promises": "rated patterns",
           "eased": "relaxed_problem"}
"""Words that the glossary has others for, in the rooms of the search; elsewhere some have another meaning."""
FILES = [path for floor in ("formulations", "heuristics") for path in sorted((ROOT / floor).rglob("*.py"))]


def names(path):
    """Every name that a file defines or uses."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
    yield path.stem


def words(name):
    """The words of a name in snake_case or CamelCase, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("floor", ["formulations", "heuristics"])
def test_no_retired_word_names_anything(floor):
    used = {f"{path.relative_to(ROOT)}: {name}: say {RETIRED[word]}" for path in FILES
            if path.is_relative_to(ROOT / floor) for name in names(path) for word in words(name) & RETIRED.keys()}
    assert sorted(used) == []


def test_the_words_of_a_name_are_told():
    assert words("CoverUse") == {"cover", "use"} and words("_MOST_contents") == {"most", "contents"}


def test_the_glossary_defines_the_words_that_names_use():
    defined = (ROOT / "docs" / "glossary.md").read_text()
    for word in ("pattern", "replica set", "pool", "slice type", "demand group"):
        assert f"| {word} |" in defined
