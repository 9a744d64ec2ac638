"""How runs end: the words for it, and the RunOutcome that ``apply`` and ``rollback`` return."""

from provision.applier.steps import Step
from provision.models.base.fields import Record, Text

APPLIED = "applied"
"""The GPUs are as the plan says."""
QUARANTINED = "quarantined"
"""The GPUs are as the plan says, except slices that can neither be finished nor destroyed."""
RESTORED = "restored"
"""The former layout is there again, after a failure or a rollback."""
UNRESTORED = "unrestored"
"""The GPUs are neither as the plan says nor as they were before."""
DECLINED = "declined"
"""Nothing was done, because the question before the run was answered with no."""


class RunOutcome(Record):
    """How a run on this machine's GPUs ended.

    ``outcome`` is one of the words above, and ``steps`` are the steps that were planned. ``failure`` says why the plan
    was not reached. ``quarantined`` has a line for every slice that is quarantined, and ``unrestored`` a line for
    everything that could not be restored. ``notes`` tell which instances of others stay, and what is to be done
    elsewhere.
    """

    outcome: Text
    steps: tuple[Step, ...] = ()
    failure: Text | None = None
    quarantined: tuple[Text, ...] = ()
    unrestored: tuple[Text, ...] = ()
    notes: tuple[Text, ...] = ()
