"""A first plan: read an instance, plan it, prove it, replay it.

Run as ``python examples/first_plan.py``.
"""

import provision

instance = provision.read("parvagpu-s1")
result = provision.solve(instance, time_limit_s=10)
print(result)
print(f"proven: {result.bound == result.objective}, holds: {result.verified}")
for line in result.notes:
    print(line)

replay = provision.simulate(instance, result.plan, seconds=10)
print(replay)
for one in replay.workloads:
    print(f"{one.workload}: P99 {one.p99.mean_ms:.0f} of {one.slo_ms:.0f} ms")
