"""Workflows: applications whose requests pass through several workloads, which form a directed acyclic graph.

A language model may be split into a prefill and a decode workload, which form a workflow of two stages. Replicas of the
prefill pool compute prompts and give first tokens. Replicas of the decode pool receive the KV caches and give all
further tokens (Splitwise, Patel et al., ISCA 2024; DistServe, Zhong et al., OSDI 2024). The first token counts as given
when the KV cache has arrived; therefore the time of a whole answer is the sum of the times of both stages.

The prefill stage keeps the limit on the first token, the decode stage the limit on further tokens. If there is a limit
on whole answers, the decode stage has the time of this limit that the limit on the first token leaves. If this time is
less than the limit on further tokens allows, only half as many requests may be late in each stage, so that both stages
together have no more late requests than allowed (Boole's inequality).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise, product
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import Field, model_validator

from provision.models.base.fields import MOST_PERCENTILE, Name, Percentile, Record, empty
from provision.models.base.tolerances import TOLERANCE
from provision.models.performance.tokens.requests import Lengths, RequestTokens, TokenSlo, longest_ms
from provision.models.problem.policy import Policy
from provision.models.problem.workload import Workload

if TYPE_CHECKING:
    from networkx import DiGraph

PREFILL: Final = "prefill"
DECODE: Final = "decode"
ONE = Lengths(mean=1.0)


class Workflow(Record):
    """An application of several models: every request passes through all its workloads.

    It is given by ``stages`` or by ``edges``. Stages follow one another: all workloads of a stage serve the request at
    the same time, and the stage ends with the last of their answers. An edge is a pair of workloads; a workload serves
    a request when all workloads with an edge to it have answered. Edges form no cycle.

    The SLO of the workflow is the largest sum of its workloads' SLOs along a path. ``percentile`` percent of the
    requests must be answered within this SLO.
    """

    name: Name
    stages: tuple[Annotated[tuple[Name, ...], Field(min_length=1)], ...] = Field(
        default=(), exclude_if=empty)
    edges: tuple[tuple[Name, Name], ...] = Field(default=(), exclude_if=empty)
    percentile: Percentile = Field(default=99.0, exclude_if=lambda percentile: percentile == 99)

    @model_validator(mode="after")
    def _one_way_without_circle(self) -> Self:
        if bool(self.stages) == bool(self.edges):
            raise ValueError("stages and edges are two ways to say who serves a request when; give one of them")
        if self.edges:
            import networkx as nx

            if not nx.is_directed_acyclic_graph(self.graph):
                circle = [before for before, _ in nx.find_cycle(self.graph)]
                raise ValueError(f"edges: lead in a circle: {' -> '.join([*circle, circle[0]])}; leave out one of them")
        return self

    @property
    def workloads(self) -> list[str]:
        """The names of all workloads of the workflow; a workload in several stages is listed once for each stage."""
        return [*chain(*self.stages), *dict.fromkeys(chain(*self.edges))]

    @cached_property
    def graph(self) -> DiGraph:
        """The graph of the names of the workloads; an edge leads from a workload to a workload that needs its answer.
        """
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(self.workloads)
        for before, after in pairwise(self.stages):
            graph.add_edges_from(product(before, after))
        graph.add_edges_from(self.edges)
        return graph

    @cached_property
    def order(self) -> list[str]:
        """The names of the workloads in topological order: every workload comes after the workloads whose answers it
        needs.
        """
        import networkx as nx

        return list(nx.topological_sort(self.graph))

    def longest(self, times: Mapping[str, float]) -> float:
        """The largest sum of ``times`` along a path; ``times`` is keyed by workload."""
        ends: dict[str, float] = {}
        for name in self.order:
            ends[name] = times[name] + max((ends[one] for one in self.graph.predecessors(name)), default=0.0)
        return max(ends.values())


def split_in_pools(workloads: Sequence[Workload], policy: Policy) -> tuple[list[Workload], list[Workflow]]:
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
