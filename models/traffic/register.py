"""Registers latency rules by the name that a policy's ``latency_budget`` gives."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from provision.models.base.errors import InputError
from provision.models.traffic.rule import LatencyRule

RULES = {
    "half_slo": ("provision.models.traffic.half_slo", "HalfSlo"),
    "full_batches": ("provision.models.traffic.full_batches", "FullBatches"),
    "queueing": ("provision.models.traffic.queueing", "Queueing"),
}
"""The module and the class of each rule of this package; imported on first use."""
GROUP = "provision.rules"
"""The entry points by which other packages add rules; each names a class that is made without parameters."""


@cache
def rule_names() -> tuple[str, ...]:
    """The names of all rules."""
    return (*RULES, *sorted(entry.name for entry in entry_points(group=GROUP)))


@cache
def rule_of(name: str) -> LatencyRule:
    """Return the latency rule with this name. Raises InputError if there is none; the message lists the rules that
    exist.
    """
    if name in RULES:
        module, kind = RULES[name]
        found: LatencyRule = getattr(import_module(module), kind)()
        return found
    for entry in entry_points(group=GROUP, name=name):
        made: LatencyRule = entry.load()()
        return made
    raise InputError(f"unknown latency rule {name!r}; use one of {', '.join(rule_names())}")
