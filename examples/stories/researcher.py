"""A researcher sets a heuristic of their own against those that ship, with means over seeds, as a table for a paper.

Run in an empty folder; about 5 s of a core.
"""

import provision
from provision.models.problem.search import Outcome


def dedicated(instance, search):
    """Every workload on GPUs of its own."""
    plans = [provision.solve(instance.replace(workloads=(one,)), "greedy", seed=search.seed, replay=False).plan
             for one in instance.workloads]
    gpus = tuple(gpu for plan in plans for gpu in plan.gpus)
    return Outcome("feasible", "completed", plans[0].model_copy(update={"gpus": gpus, "digest": instance.digest}))


table = provision.compare(["parvagpu-s1", "parvagpu-s2"], [dedicated, "greedy", "parvagpu", "paris", "igniter"],
                          seeds=range(2), time_limit_s=2)
for row in table.rows:
    print(f"{row['instance']:12} {row['method']:10} {row['objective']:8.2f} $ per hour, {row['excess']:+.0%}")
print("cannot plan these:", ", ".join(table.refused))
table.write("comparison.csv")
table.write("comparison.tex")
