"""InSS's workflow over time (section 5.5): batches first, the actor where they do not suffice, shadow processes.

Followed: whenever rates change, Algorithm 1 decides batches for the placement that stands (case 1); where it finds
none for some workload, the actor places all anew and Algorithm 1 runs again (case 2). A process whose GPU or SM share
changes is replaced: its successor starts beside it as a shadow, and it is ended when that is ready, so that the
decision takes effect a while later, and meanwhile the old processes serve with the batches that they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.policy import provisioning

if TYPE_CHECKING:
    from provision.heuristics.inss.policy import TrainedPolicy
    from provision.heuristics.inss.system import Provisioning, System
    from provision.models.base.arrays import Bools, Floats, Ints


class Step(NamedTuple):
    """What a change of rates led to.

    Attributes
    ----------
    reallocated
        Whether the actor placed anew (case 2).
    shadows
        Number of processes that were started beside those they replace.
    keeps
        (workloads,) whether SLO and rate hold with what was decided.
    meanwhile
        (workloads,) the same with what ran before, while shadows start; equal to ``keeps`` without shadows.
    throughput_rps
        (workloads,) what all could carry as decided.
    """

    reallocated: bool
    shadows: int
    keeps: Bools
    meanwhile: Bools
    throughput_rps: Floats


class Standing(NamedTuple):
    """What runs: the Provisioning and the batches, of one system."""

    given: Provisioning
    batch: Ints


class Workflow:
    """A scheduler with what it has decided so far.

    Parameters
    ----------
    system
        The System.
    policy
        The actor.
    patient
        Whether batches are tried first; else the actor decides at every step.
    """

    def __init__(self, system: System, policy: TrainedPolicy, patient: bool = True) -> None:
        self.system, self.policy, self.patient = system, policy, patient
        self.standing: Standing | None = None
        self._nothing = np.zeros((1, system.workloads))

    def step(self, rates_rps: Floats) -> Step:
        """Decide for rates, (workloads,); nothing waits."""
        kept = self._batches(rates_rps) if self.patient else None
        decided = kept or self._anew(rates_rps)
        keeps = meanwhile = self._keeps(decided, rates_rps)
        shadows = 0 if self.standing is None else _changed(self.standing.given, decided.given)
        if self.standing is not None and shadows:
            meanwhile = self._keeps(self.standing, rates_rps)
        self.standing = decided
        return Step(kept is None, shadows, keeps, meanwhile, self.system.run(*decided)[1][0])

    def _batches(self, rates_rps: Floats) -> Standing | None:
        """Batches for the placement that stands (case 1); None where some workload has none."""
        if self.standing is None:
            return None
        batch, found = decide_batches(self.system, self.standing.given, rates_rps[None], self._nothing)
        return self.standing._replace(batch=batch) if found.all() else None

    def _anew(self, rates_rps: Floats) -> Standing:
        """The actor's placement and batches for it (case 2)."""
        given = provisioning(self.system, self.policy.act(self.system, rates_rps[None], self._nothing))
        return Standing(given, decide_batches(self.system, given, rates_rps[None], self._nothing)[0])

    def _keeps(self, standing: Standing, rates_rps: Floats) -> Bools:
        """(workloads,) whether SLO and rate hold."""
        return keeping(self.system, *standing, rates_rps[None], self._nothing)[0]


def _changed(before: Provisioning, after: Provisioning) -> int:
    """Number of processes that need a successor."""
    return int(np.sum((after.gpu != before.gpu) | (after.units != before.units)))
