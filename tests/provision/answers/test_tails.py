"""What is said of predictions whose errors nobody knows."""

import pytest

import provision
from provision.answers.tails import without_bands


@pytest.mark.parametrize(("name", "method"), [("igniter-variants-12", "greedy"), ("inss-six", "auto")])
def test_a_plan_on_derived_data_says_that_no_band_is_known(name, method):
    instance = provision.read(name)
    told = list(without_bands(instance, provision.solve(instance, method).plan))
    assert told and all(one.startswith("No band is known for ") and "derived" in one.lower() for one in told)


def test_a_plan_on_judged_data_says_nothing():
    instance = provision.read("parvagpu-s1")
    assert not list(without_bands(instance, provision.solve(instance, method="greedy").plan))
