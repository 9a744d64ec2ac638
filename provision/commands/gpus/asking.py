"""Asks the user before GPUs or a cluster are changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from provision.applier.layout import Observed
from provision.applier.steps import Step
from provision.commands.gpus.status import print_steps, step_rows
from provision.models.base.errors import InputError


def asked_of_machine(yes: bool, as_json: bool) -> Callable[[Observed, Sequence[Step]], bool] | None:
    """The function that asks the user about steps on this machine's GPUs; None with ``--yes``."""

    def ask(present: Observed, steps: Sequence[Step]) -> bool:
        _check_somebody_is_there(as_json, len(steps))
        print_steps(step_rows(present, steps))
        return _agreed()

    return None if yes else ask


def asked_of_cluster(yes: bool, as_json: bool) -> Callable[[Sequence[str]], bool] | None:
    """The function that asks the user about steps on a cluster; None with ``--yes``."""

    def ask(steps: Sequence[str]) -> bool:
        _check_somebody_is_there(as_json, len(steps))
        print(*steps, sep="\n")
        return _agreed()

    return None if yes else ask


def _check_somebody_is_there(as_json: bool, steps: int) -> None:
    """Refuse to go on if nobody can answer: stdin is no terminal, or ``--json`` is given."""
    if as_json or not sys.stdin.isatty():
        raise InputError(f"{steps} steps to do, and nobody to ask; look at provision diff and add --yes")


def _agreed() -> bool:
    """Whether the user says yes; the end of the input counts as no."""
    try:
        return input("Do this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
