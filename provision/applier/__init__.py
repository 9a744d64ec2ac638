"""Putting a plan on the GPUs: what runs, what differs, the steps, the journal, and the way back.

NVML calls are made one at a time and given up after two minutes without an answer. A lock on every GPU keeps appliers
apart whatever their state directories; what a state directory's applier did not make it does not undo.
"""

from provision.applier.execute import Permissions
from provision.applier.operations import RunOutcome, apply, apply_last, default_state, difference, rollback, status
from provision.applier.target import Commands

__all__ = [
    "Commands", "Permissions", "RunOutcome", "apply", "apply_last", "default_state", "difference", "rollback", "status",
]
