"""Checks by replays whether replicas of language models keep the limits on their tokens at their routed rates."""

from collections.abc import Iterator
from typing import NamedTuple

from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.slo import Limits
from provision.models.plans.plan import Plan, Replica
from provision.models.problem.instance import Instance
from provision.models.problem.workload import Workload

NAMES = ("time to the first token", "time per output token", "time of the whole answer")
FIELDS = ("ttft_ms", "tpot_ms", "e2e_ms")
DIGITS = 6
"""The number of significant digits to which rates are rounded, so that nearly equal replicas are replayed only once."""


class Met(NamedTuple):
    """The percentiles of the times at a replica in ms, the limits, and the indices of the broken limits."""

    times_ms: tuple[float, ...]
    limits: Limits
    broken: tuple[int, ...]

    @property
    def complaints(self) -> list[tuple[str, float, float]]:
        """For every broken limit a line for messages, the time and the limit in ms."""
        return [
            (f"P{self.limits.percentile:g} of the {NAMES[at]} is {self.times_ms[at]:.6g} ms, "
             f"{self.times_ms[at] / self.limits.times_ms[at] - 1:.1%} over the {self.limits.times_ms[at]:.6g} ms that "
             f"{FIELDS[at]} leaves; route less here", self.times_ms[at], self.limits.times_ms[at])
            for at in self.broken
        ]  # fmt: skip


class TokenReplays:
    """Replays by the verifier's own engine, which keeps what it replayed."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def met(self, gpu: str, profile: str, replica: Replica) -> Met | None:
        """The times at a replica; None if no rate is routed to it. The performance data must describe the replica."""
        workload, model = self.instance.workload[replica.workload], self.instance.model_of(replica)
        data = self.instance.performance_of(gpu, model)
        if replica.rate_rps == 0 or workload.tokens is None or not isinstance(data, TokenModels):
            return None
        limits, traffic = self.instance.policy.limits_of(workload), self.instance.policy.traffic_of(workload)
        rate_rps = float(f"{replica.rate_rps:.{DIGITS}g}")
        from provision.verification.token_engine import tails_ms

        times_ms, late = tails_ms(data, model, profile, replica.batch, rate_rps, workload.tokens, limits, traffic)
        broken = tuple(at for at, part in enumerate(late) if part > limits.may_be_late)
        return Met(tuple(times_ms.tolist()), limits, broken)

    def after_losses(self, plan: Plan, workload: Workload) -> Iterator[tuple[int, str, float, float]]:
        """Yield what breaks if a GPU is lost and the other replicas take over in proportion to their rates.

        Yields
        ------
        tuple
            The index of the lost GPU, a line for messages, and the value and its limit. Both are times in ms, or
            requests/s if no replica is left.
        """
        mine = [(at, piece.profile, one) for at, _, piece, one in plan.replicas() if one.workload == workload.name]
        whole = sum(one.rate_rps for _, _, one in mine)
        for lost in sorted({at for at, _, one in mine if one.rate_rps > 0}):
            left = [(at, profile, one) for at, profile, one in mine if at != lost]
            rest = sum(one.rate_rps for _, _, one in left)
            if not rest:
                yield lost, f"after its loss the others carry 0 of {whole:.6g} requests/s", 0.0, whole
            for at, profile, one in left if rest else ():
                more = one.model_copy(update={"rate_rps": one.rate_rps * whole / rest})
                met = self.met(plan.gpus[at].gpu, profile, more)
                for message, value, limit in met.complaints if met else ():
                    yield lost, f"after its loss, on GPU {at} {message}", value, limit
