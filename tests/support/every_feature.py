"""Random small instances that ask for every combination of features, and what is wrong with the answers on them."""

import numpy as np
from drawn_variants import with_variants
from synthetic import random_instance
from synthetic_networks import random_mixed
from synthetic_sharing import random_sharing

import provision
from provision.models.problem.objective import objective_of
from provision.models.problem.workload import FleetEntry, Workload

KINDS = (
    (random_instance, dict(gpus=("a30",))),
    (random_instance, dict(gpus=("h100-80gb",))),
    (random_instance, dict(gpus=("t4",))),
    (random_instance, dict(gpus=("a100-80gb", "t4"))),
    (random_mixed, dict(fleet=(("a30", True),))),
    (random_mixed, dict(fleet=(("a30", False), ("a100-40gb", True)), measured=True)),
    (random_sharing, dict(gpus=("v100",), hot=True)),
    (random_sharing, dict(gpus=("v100", "t4"))),
)
"""MIG and whole GPUs, one type and several, tables, closed networks and interference."""
FLAGS = ("priced", "limited", "least", "most", "spread", "headroom", "share_slices", "variants")
COMBINATIONS = len(KINDS) * 2 ** len(FLAGS)
"""The first so many seeds ask for every combination of kinds and flags, the others for a few features each."""
FEW = 0.2
"""Probability of each flag from there on: few methods take many features."""

QUEUEING = 0.2
"""Probability of latency_budget queueing where replicas stand alone."""


def instance_of(seed):
    """A random instance; kind and flags follow from the seed."""
    draw, kind = KINDS[seed % len(KINDS)]
    rng = np.random.default_rng(seed)
    bits = seed // len(KINDS) if seed < COMBINATIONS else sum(int(rng.random() < FEW) << at for at in range(len(FLAGS)))
    asked = {flag for at, flag in enumerate(FLAGS) if bits >> at & 1}
    plain = draw(seed, workloads=int(rng.integers(1, 5)), **kind)
    alone = "share_slices" not in asked and draw is not random_sharing
    queueing = alone and rng.random() < QUEUEING
    policy = {"headroom": float("headroom" in asked) / 8, "share_slices": "share_slices" in asked}
    policy["latency_budget"] = "queueing" if queueing else "half_slo"
    instance = plain.replace(
        fleet=tuple(_entry(rng, asked, one) for one in plain.fleet),
        workloads=tuple(_workload(rng, asked, one) for one in plain.workloads),
        policy=plain.policy.model_copy(update=policy),
    )
    return with_variants(instance, seed) if "variants" in asked else instance


def throughput_of(seed):
    """The same instance on a fixed fleet for most throughput; None where that is not for its policy."""
    plain = instance_of(seed)
    several = any(one.variants for one in plain.workloads)
    if plain.policy.latency_budget == "queueing" or plain.policy.share_slices or several:
        return None
    rng = np.random.default_rng(seed)
    fleet = [one.model_copy(update={"count": int(rng.integers(1, 5))}) for one in plain.fleet]
    return plain.replace(objective="max_throughput", fleet=fleet)


def _entry(rng, asked, entry):
    price = float(np.round(rng.uniform(1, 5), 2)) if "priced" in asked else None
    count = int(rng.choice([0, 1, 3, 8, 20])) if "limited" in asked else None
    return FleetEntry(gpu=entry.gpu, mig=entry.mig, price_per_hour=price, count=count, mps=bool(rng.random() < 0.9))


def _workload(rng, asked, one):
    least = int(rng.integers(0, 4)) if "least" in asked else 1
    most = max(least, 1) + int(rng.choice([0, 2, 6])) if "most" in asked else None
    share = float(rng.choice([0.2, 0.34, 0.5, 1.0])) if "spread" in asked else 1.0
    rate_rps = one.rate_rps if rng.random() < 0.9 else 0.0
    return Workload(name=one.name, model=one.model, slo_ms=one.slo_ms, rate_rps=rate_rps,
                    min_replicas=least, max_replicas=most, max_share_per_gpu=share)


def faults_of(instance, names, time_limit_s):
    """What is wrong with the answers of some methods, a list of lines, and the plans that were made."""
    results, faults = {}, []
    for name in names:
        try:
            results[name] = provision.solve(instance, name, time_limit_s=time_limit_s)
        except provision.UnsupportedError:
            continue
        except Exception as error:  # whatever it is, no method may end so
            faults.append(f"{instance.name} {name}: {type(error).__name__}: {error}")
    return faults + _disagreements(instance, results), sum(one.plan is not None for one in results.values())


def _disagreements(instance, results):
    """Verified plans better than a bound, or where another method proved that there is none."""
    values = {name: one.objective for name, one in results.items() if one.verified}
    found = []
    for name, one in results.items():
        for other, value in values.items():
            beaten = one.bound is not None and objective_of(instance).loss(value) < objective_of(instance).loss(
                one.bound
            ) - 1e-9 * abs(value)
            if one.status == "infeasible" or beaten:
                claim = "infeasible" if one.status == "infeasible" else f"bound {one.bound:g}"
                found.append(f"{instance.name}: {claim} by {name}, a plan of {value:g} by {other}")
    return found
