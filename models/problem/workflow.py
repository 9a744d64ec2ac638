"""Workflows: applications whose requests pass through several workloads, which form a directed acyclic graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import chain, pairwise, product
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from provision.models.base.fields import Name, Percentile, Record, empty

if TYPE_CHECKING:
    from networkx import DiGraph


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
