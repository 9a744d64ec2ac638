"""A sample of the fuzz run: no method's plan fails and no two methods contradict each other."""

import pytest
from every_feature import COMBINATIONS, faults_of, instance_of

import provision

SAMPLE = range(0, 2 * COMBINATIONS, 227)


@pytest.mark.parametrize("block", range(3))
def test_methods_on_a_sample_of_all_features(block):
    """Heuristics and auto on every 227th instance: something is planned, nothing is wrong."""
    names = [name for name, one in provision.methods().items() if not one.exact or name == "auto"]
    found = [faults_of(instance_of(seed), names, 2) for seed in SAMPLE[block::3]]
    assert not [fault for faults, _ in found for fault in faults]
    assert sum(plans for _, plans in found) >= 5
