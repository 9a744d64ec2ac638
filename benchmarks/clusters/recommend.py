"""What ``recommend`` finds on a large cluster, and in which time.

Run as ``python benchmarks/clusters/recommend.py [--nodes N] [--seed S] [--limit S] [--results DIR]``. The cluster is
drawn: each machine has four A100s, of which about one in seven is idle and every other has one replica of a service on
the whole GPU, as clusters without partitions have it. The services are those of ParvaGPU's scenario S3, each at two
SLOs (S3's, and twice that); a replica gets a tenth of S3's rate.
"""

import argparse
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "papers"))
import results

import provision
from provision.cluster.recommend import recommend
from provision.cluster.state import State, StateGpu, StateSlice
from provision.draw.output import print_table
from provision.models.base.clock import Stopwatch

GPUS, IDLE, PART = 4, 1 / 7, 0.1
COLUMNS = ("nodes", "gpus", "services", "status", "enough", "bound", "steps", "spare_gpus", "all_served",
           "seconds", "load")


def drawn(nodes, seed):
    """The state of a cluster of so many machines."""
    rng, base = random.Random(seed), provision.read("parvagpu-s3")
    services = [one.model_copy(update={"name": f"{one.name}-{times}", "slo_ms": one.slo_ms * times})
                for one in base.workloads for times in (1, 2)]
    rates, gpus = dict.fromkeys((one.name for one in services), 0.0), []
    for at in range(nodes * GPUS):
        slices = ()
        if rng.random() > IDLE:
            one = rng.choice(services)
            rates[one.name] += PART * one.rate_rps
            replica = provision.Replica(workload=one.name, batch=4, rate_rps=PART * one.rate_rps)
            slices = (StateSlice(profile="whole", pods=(f"shop/{one.name}-{at}",), replicas=(replica,)),)
        gpus.append(StateGpu(node=f"n{at // GPUS}", number=at % GPUS, gpu="a100-80gb", mig=False, slices=slices))
    workloads = [one.model_copy(update={"rate_rps": rates[one.name]}) for one in services if rates[one.name]]
    fleet = [{"gpu": "a100-80gb", "price_per_hour": 1.0, "count": len(gpus), "mps": False}]
    instance = provision.Instance(version=2, name="drawn", fleet=fleet, performance=["parvagpu-a100"],
                                  workloads=workloads)
    return State(name="drawn", sources=(f"drawn, seed {seed}",), gpus=tuple(gpus), instance=instance)


def main():
    """Print a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds")
    results.add_results(parser)
    options = parser.parse_args()
    state = drawn(options.nodes, options.seed)
    load, watch = os.getloadavg()[0], Stopwatch()
    found = recommend(state, time_limit_s=options.limit)
    rows = [(options.nodes, found.gpus, len(state.instance.workloads), found.status, found.target_gpus,
             found.bound_per_hour, len(found.order.steps), found.order.spare_gpus, found.order.found,
             round(watch.elapsed_s, 1), round(load))]
    print_table(COLUMNS, rows)
    results.write(options.results, "recommend", COLUMNS, rows, [options.seed])


if __name__ == "__main__":
    main()
