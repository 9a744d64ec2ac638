"""Splits a language model into a prefill and a decode workload, which form a workflow of two stages.

Replicas of the prefill pool compute prompts and give first tokens. Replicas of the decode pool receive the KV caches
and give all further tokens (Splitwise, Patel et al., ISCA 2024; DistServe, Zhong et al., OSDI 2024). The first token
counts as given when the KV cache has arrived; therefore the time of a whole answer is the sum of the times of both
stages.

The prefill stage keeps the limit on the first token, the decode stage the limit on further tokens. If there is a limit
on whole answers, the decode stage has the time of this limit that the limit on the first token leaves. If this time is
less than the limit on further tokens allows, only half as many requests may be late in each stage, so that both stages
together have no more late requests than allowed (Boole's inequality).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from provision.models.base.fields import MOST_PERCENTILE
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.tokens.lengths import Lengths, RequestTokens
from provision.models.performance.tokens.slo import TokenSlo, longest_ms
from provision.models.problem.policy import Policy
from provision.models.problem.workflow import Workflow
from provision.models.problem.workload import Workload

PREFILL: Final = "prefill"
DECODE: Final = "decode"
ONE = Lengths(mean=1.0)


def split(workloads: Sequence[Workload], policy: Policy) -> tuple[list[Workload], list[Workflow]]:
    """Split every workload that asks for two pools; returns (all workloads, the workflows of the split workloads).

    The prefill workload takes the place of the workload in the list. Decode workloads are appended, so that the indices
    of other workloads do not change.
    """
    first: list[Workload] = []
    second: list[Workload] = []
    flows: list[Workflow] = []
    for one in workloads:
        if one.tokens is None or one.tokens.disaggregated is None:
            first.append(one)
            continue
        stages = _stages(one, policy.percentile_of(one))
        first.append(stages[0])
        second.append(stages[1])
        flows.append(Workflow(name=one.name, stages=tuple((stage.name,) for stage in stages),
                              percentile=policy.percentile_of(one)))
    return first + second, flows


def check_workflows(workflows: Sequence[Workflow], workload: Mapping[str, Workload]) -> None:
    """Check that the workloads of workflows exist, that each is in one stage only, and that language models in
    workflows are a prefill and a decode pool. Raises ValueError if one of these checks fails; the message names the
    workload or workflow.
    """
    for name, stages in Counter(name for one in workflows for name in one.workloads).items():
        if name not in workload:
            raise ValueError(f"workflows: no workload {name!r}; there is {', '.join(workload)}")
        if stages > 1:
            raise ValueError(f"workflows: {name!r} stands in {stages} stages; give each a workload of its own")
    for one in workflows:
        if any(workload[name].tokens for name in one.workloads) and not _one_after_another(one, workload):
            raise ValueError(f"workflows: {one.name!r} has workloads with tokens, but not a stage of prefill, then one "
                             "of decode for the same input; write disaggregated: true in the tokens of one workload "
                             "instead")


def _one_after_another(flow: Workflow, workload: Mapping[str, Workload]) -> bool:
    """Whether a workflow is a prefill stage followed by a decode stage for the same requests."""
    tokens = [workload[name].tokens for name in flow.order]
    alike = len({one.input for one in tokens if one}) == 1
    return [one and one.pool for one in tokens] == [PREFILL, DECODE] and alike and flow.graph.size() == 1


def _stages(whole: Workload, percentile: float) -> tuple[Workload, Workload]:
    """The pair (prefill workload, decode workload) of a language model."""
    tokens, slo = whole.tokens, whole.slo
    assert tokens and tokens.disaggregated and slo and slo.ttft_ms and slo.tpot_ms
    if whole.slo_ms < longest_ms(slo.ttft_ms, slo.tpot_ms, tokens.output.most) * (1 - TOLERANCE):
        percentile = _shared(whole, percentile)
    prompts = RequestTokens(input=tokens.input, output=ONE, pool=PREFILL, shared_prefix=tokens.shared_prefix,
                            transfer_ms_per_token=tokens.disaggregated.ms_per_token)
    further = RequestTokens(input=tokens.input, output=tokens.output, pool=DECODE)
    limits = {"percentile": percentile}
    return (
        _stage(whole, PREFILL, prompts, TokenSlo(ttft_ms=slo.ttft_ms, **limits), slo.ttft_ms),
        _stage(whole, DECODE, further, TokenSlo(tpot_ms=slo.tpot_ms, **limits), whole.slo_ms - slo.ttft_ms),
    )


def _shared(whole: Workload, percentile: float) -> float:
    """The percentile that each of two stages has to keep so that both together keep ``percentile``."""
    found = (100 + percentile) / 2
    if found > MOST_PERCENTILE:
        raise ValueError(f"workloads: {whole.name}: two pools share an e2e_ms up to percentile "
                         f"{2 * MOST_PERCENTILE - 100:g} (got {percentile:g}); lower it, or leave e2e_ms out")
    return found


def _stage(whole: Workload, pool: str, tokens: RequestTokens, slo: TokenSlo, slo_ms: float) -> Workload:
    changes: dict[str, Any] = {"name": f"{whole.name}-{pool}", "tokens": tokens, "slo": slo, "slo_ms": slo_ms,
                               "percentile": None}
    return Workload(**{name: getattr(whole, name) for name in Workload.model_fields} | changes)
