"""A researcher sets a heuristic of their own against those that ship, on generated instances, as a table for a paper.

Run in an empty folder; about 10 s of a core.
"""

import random

import provision
from provision import Outcome


def dedicated(instance, search):
    """Every workload on GPUs of its own."""
    plans = [provision.solve(instance.replace(workloads=(one,)), "greedy", seed=search.seed, replay=False).plan
             for one in instance.workloads]
    gpus = tuple(gpu for plan in plans for gpu in plan.gpus)
    return Outcome("feasible", "completed", plans[0].model_copy(update={"gpus": gpus, "digest": instance.digest}))


def drawn(seed):
    """An instance of four workloads on A100s, from a generator."""
    draw = random.Random(seed)
    return provision.Instance.model_validate({
        "version": 2, "name": f"drawn-{seed}", "fleet": [{"gpu": "a100-80gb", "price_per_hour": 5.12}],
        "performance": "parvagpu-a100", "policy": {"latency_budget": "half_slo"},
        "workloads": [{"name": f"w{at}", "model": draw.choice(["resnet50", "bert", "vgg19", "mobilenetv2"]),
                       "slo_ms": draw.choice([200, 400, 600]), "rate_rps": draw.randint(100, 900)} for at in range(4)],
    })


table = provision.compare(["parvagpu-s1", *map(drawn, range(3))], [dedicated, "greedy", "parvagpu", "auto", "igniter"],
                          seeds=range(2), time_limit_s=2)
for row in table.rows:
    print(f"{row['instance']:12} {row['method']:10} {row['objective']:8.2f} $ per hour, gap {row['gap']:.0%}")
for row in table.overall:
    print(f"{row['method']:10} gap {row['gap']:.3f} +- {row['gap_ci']:.3f} over {row['instances']} instances")
print("cannot plan these:", ", ".join(table.refused))
table.write("comparison.csv")
table.write("comparison.tex")
