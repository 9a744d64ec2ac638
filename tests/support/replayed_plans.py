"""Small plans to replay: slices, plans of them, and an instance with one measured model."""

import provision


def plan_of(instance, *slices, gpu="a100-80gb", mig=True):
    """A plan with one GPU per slice."""
    gpus = tuple(provision.PlannedGpu(gpu=gpu, mig=mig, slices=(piece,)) for piece in slices)
    return provision.Plan(version=1, instance=instance.name, gpus=gpus)


def piece_of(profile, *replicas):
    """A slice; replicas are (workload, batch, processes, rate) or with an SM share."""
    fields = ("workload", "batch", "processes", "rate_rps", "sm_share")
    return provision.Slice(
        profile=profile, replicas=tuple(provision.Replica(**dict(zip(fields, one, strict=False))) for one in replicas)
    )


def table(**options):
    """An instance with one measured model on whole T4s."""
    points = [["whole", 1, 1, 100.0, 10.0], ["whole", 4, 1, 200.0, 20.0], ["whole", 4, 2, 250.0, 32.0]]
    data = {"version": 1, "name": "t", "gpu": "t4", "kind": "measured-segments", "models": {"m": {"points": points}}}
    workload = {"name": "w", "model": "m", "slo_ms": 100.0, "rate_rps": 50.0} | options
    return provision.Instance.model_validate({
        "version": 1, "name": "tiny", "fleet": [{"gpu": "t4"}], "performance": [data], "workloads": [workload],
    }, strict=False)
