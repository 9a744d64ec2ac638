"""Putting a plan on the GPUs: what runs, what differs, the steps, the journal, and the way back.

NVML calls are made one at a time and given up after two minutes without an answer. The state directory holds the lock:
appliers with different state directories do not see each other.
"""

from provision.applier.execute import Permissions
from provision.applier.operations import RunOutcome, apply, default_state, difference, rollback, status
from provision.applier.target import Commands

__all__ = ["Commands", "Permissions", "RunOutcome", "apply", "default_state", "difference", "rollback", "status"]
