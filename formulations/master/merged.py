"""A bound at once for many workloads: similar ones are merged into one, and the few that remain are bounded by prices.

Let one workload have the rates of several workloads with the same models and the same traffic, the longest of their
SLOs, and no limits on its replicas. Then every plan of the several is a plan of the one: its replicas stay valid, and
together they carry its rate. So the several need at least the GPUs that the one needs. Patterns that carry rates prove
how many these are (`rates.rated`). They distinguish only few workloads, but take no longer if rates are higher.
"""

from collections.abc import Iterator

from provision.formulations.master.fullest import FullFleet
from provision.formulations.master.rates.rated import RatedSearch, rated_oracles
from provision.formulations.pricing.rate_oracles import rates_of
from provision.formulations.pricing.rates import MOST_NAMED
from provision.formulations.pricing.shared_mig.shared_relaxation import further_bound, is_relaxed
from provision.formulations.search.feasibility import proved_infeasible
from provision.formulations.search.problem import Problem
from provision.formulations.search.segments import best_segments
from provision.formulations.values.classes import classes_of
from provision.models.problem.instance import THROUGHPUT, Instance
from provision.models.problem.search import Search


def merged(instance: Instance, ranges: int) -> Instance:
    """The instance with one workload for all that have the same models, the same traffic and an SLO in the same of at
    most ``ranges`` ranges. Workloads without requests are left out, and so are all limits on replicas. The instance may
    not have workflows.
    """
    served, found = [at for at, one in enumerate(instance.workloads) if instance.planned_rps(one) > 0], []
    for alike in classes_of(instance, served, ranges, each=True):
        several = [instance.workloads[at] for at in alike.members.tolist()]
        found.append(max(several, key=lambda one: one.slo_ms).model_copy(update={
            "rate_rps": sum(one.rate_rps for one in several), "min_replicas": 1, "max_replicas": None,
            "max_share_per_gpu": 1.0}))
    return instance.replace(workloads=found)


def merged_bounds(instance: Instance, search: Search, name: str) -> Iterator[float]:
    """Yield bounds on the objective over ever more merged workloads; infinite if the fleet is too small, 0 if nothing
    was proven in time. ``name`` is that of the method.

    It ends at the time limit, when patterns could not distinguish more workloads, or where a way of sharing has no
    patterns that carry rates. It yields nothing with workflows, or if patterns can distinguish the workloads of the
    instance itself.
    """
    if instance.workflows or len(instance.workloads) <= MOST_NAMED:
        return
    before = 0
    for ranges in range(1, MOST_NAMED + 1):
        few = merged(instance, ranges)
        if len(few.workloads) > MOST_NAMED or not search.left_s:
            return
        if len(few.workloads) == before:
            continue
        if proved_infeasible(few, best_segments(few)):  # some may be served only beside others
            return
        before = len(few.workloads)
        if is_relaxed(few):  # proves more, where it can
            yield further_bound(few, search.left_s)
            continue
        problem = Problem(few)
        if instance.objective == THROUGHPUT:
            yield from FullFleet(problem, rates_of(problem, search.within())).rounds(search.within())
            continue
        oracles = rated_oracles(problem, search.within())
        if oracles is None:
            return
        rated = RatedSearch(problem, oracles, search.apart(), name)
        rated.prove(quick=True)
        yield problem.objective(rated.proof.bound)
