"""A tiny instance, a good plan for it, and their parts: what tests of the verifier change in one thing."""

import provision
from provision.models.performance.measured_segments import MeasuredSegments
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice


def make_instance(**changes):
    """Workload ``a``: 100 requests/s on a 1g in 10 ms, 350 on a 3g in 12 ms; SLO 30 ms leaves 15 ms."""
    table = MeasuredSegments(
        version=1, name="table", kind="measured-segments", gpu="a100-80gb",
        models={"m": {"points": [
            ("1g.10gb", 4, 1, 100.0, 10.0), ("1g.10gb", 8, 2, 150.0, 20.0), ("3g.40gb", 8, 2, 350.0, 12.0),
            ("7g.80gb", 8, 5, 900.0, 8.0),
        ]}},
    )
    fields = dict(
        version=1, name="tiny", fleet=[{"gpu": "a100-80gb", "price_per_hour": 4.0}], performance=table,
        workloads=[{"name": "a", "model": "m", "slo_ms": 30.0, "rate_rps": 400.0}],
    )
    return provision.Instance(**fields | changes)


def replica(rate=100.0, **changes):
    return Replica(**dict(workload="a", batch=4, processes=1, rate_rps=rate) | changes)


BIG = Slice(profile="3g.40gb", start=4, replicas=(replica(300.0, batch=8, processes=2),))
SMALL = Slice(profile="1g.10gb", start=0, replicas=(replica(100.0),))


def plan(*slices, gpu="a100-80gb", mig=True, copies=1):
    return Plan(version=1, instance="tiny", gpus=(PlannedGpu(gpu=gpu, mig=mig, slices=slices),) * copies)


def kinds(report):
    return [violation.kind for violation in report.violations]
