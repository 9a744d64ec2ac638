"""YAML and JSON are parsed strictly, whatever the depth, and in time that grows with the length alone."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provision import InputError
from provision.instances.files.parse import DEEPEST, parse

LONG = 300_000
"""Characters of the long texts. With quadratic parsing each takes minutes to hours."""


@given(st.text("+-.019_eE", min_size=1, max_size=12).filter(lambda text: text != "-"))
@example("1_0.5e-3")
@example("-.5")
def test_yaml_numbers_are_those_that_python_reads(text):
    value = parse("a.yaml", f"a: {text}")["a"]
    if isinstance(value, (int, float)):
        assert value == float(text.replace("_", ""))
    elif "_" not in text and not re.fullmatch(r"[-+]?0\d+", text):
        with pytest.raises(ValueError):
            float(text)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
@pytest.mark.parametrize("around", ["[]", '{"a":}'])
@pytest.mark.parametrize("more", [0, 1, 60, 900, 50_000])
def test_depth_is_refused_in_the_same_words(name, around, more):
    """Between 100 and about 1000 levels our own limit answers, above that the limit of the library."""
    levels = DEEPEST - 2 + more  # beside the outermost mapping and the number
    text = '{"a":' + around[:-1] * levels + "1" + around[-1] * levels + "}"
    if not more:
        assert json.dumps(parse(name, text), separators=(",", ":")) == text
        return
    with pytest.raises(InputError, match="more than 100 levels of nesting; write it flatter"):
        parse(name, text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", f"a: {'1' * LONG}x", None),
        ("a.yaml", f"a: {'1_' * LONG}.x", None),
        ("a.yaml", f"a: !!int {'1:' * LONG}1", "invalid literal"),
        ("a.yaml", f"a: !!float {'1:' * LONG}1", "could not convert"),
        ("a.yaml", "%TAG !a! b\n" * LONG, "%TAG"),
        ("a.json", "{" + "".join(f'"{n}":1,' for n in range(LONG)) + '"7":1}', "key '7' stands twice"),
    ],
    ids=["digits", "underscores", "base_60_int", "base_60_float", "tags", "keys"],
)
def test_long_texts_take_no_quadratic_time(name, text, words):
    if words is None:
        assert parse(name, text) == {"a": text[3:]}
    else:
        with pytest.raises(InputError, match=words):
            parse(name, text)


def test_words_that_yaml_takes_for_truth_values_are_names_of_fields():
    assert parse("places.yaml", "apart: [{on: node, no: yes}]") == {"apart": [{"on": "node", "no": True}]}
