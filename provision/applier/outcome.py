"""How runs end: the words for it, and what ``apply`` and ``rollback`` return."""

from __future__ import annotations

from provision.applier.steps import Step
from provision.models.base.fields import Record, Text

APPLIED = "applied"
"""The plan stands."""
QUARANTINED = "quarantined"
"""The plan stands but for slices that can neither be finished nor destroyed."""
RESTORED = "restored"
"""What was there before stands, after a failure or a rollback."""
UNRESTORED = "unrestored"
"""Neither the plan nor what was there before stands."""
DECLINED = "declined"
"""Nothing was done, because the question before was answered with no."""


class RunOutcome(Record):
    """How a run on this machine's GPUs ended.

    ``outcome`` is one of the words above; ``steps`` are what was to be done. ``failure`` says why the plan was not
    reached. ``quarantined`` and ``unrestored`` have a line for every slice that is quarantined and for everything that
    could not be put back. ``notes`` tell what of others stays, and what is to be done elsewhere.
    """

    outcome: Text
    steps: tuple[Step, ...] = ()
    failure: Text | None = None
    quarantined: tuple[Text, ...] = ()
    unrestored: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()
