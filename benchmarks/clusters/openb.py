"""Alibaba's openb cluster filled pod by pod as in FGD's experiments, and the most that any placement could allocate.

Run as ``python benchmarks/clusters/openb.py FOLDER [--workload default] [--seeds N ...] [--policies P ...]``. FOLDER
has the tables of nodes and pods (``openb_node_list_gpu_node.csv.xz``, ``openb_pod_list_WORKLOAD.csv.xz``) and the
published ratios (``fgd_allocation.csv``). As in the experiments (FGD, USENIX ATC 2023), pods are shuffled, further pods
are drawn with replacement until the demand is 1.3 times the cluster's GPUs, and pods arrive one by one; none leaves,
and one that fits nowhere is dropped. The allocation is the GPUs of the placed pods over all GPUs, in percent.

The bound is a linear program: pods may be divided over nodes and within them, and only CPUs, memory, GPUs and the GPU
models that a pod accepts count, summed over the nodes of a model. No placement of the same pods allocates more.
"""

import argparse
import csv
import lzma
import sys
from collections import Counter
from pathlib import Path
from statistics import mean

import numpy as np
from scipy.optimize import linprog

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

from provision.commands.common import print_table

LOAD = 1.3
MOST_GPUS = 8
"""The load of the experiments, and the most GPUs of a node."""
NAMES = {"random": "01-Random", "best-fit": "05-BestFit", "fgd": "06-FGD"}
COLUMNS = ("workload", "policy", "seed", "allocation", "published", "bound")


def rows(path):
    """The rows of a table, compressed or not."""
    text = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return list(csv.DictReader(text.decode().splitlines()))


def pods_of(path):
    """The pods: (CPU, memory, GPUs, milli of each, models allowed)."""
    return [(int(one["cpu_milli"]), int(one["memory_mib"]), int(one["num_gpu"] or 0), int(one["gpu_milli"] or 0),
             tuple(filter(None, (one.get("gpu_spec") or "").split("|")))) for one in rows(path)]


def arriving(pods, most_milli, rng):
    """The pods in random order, with further ones until the demand is LOAD times the GPUs."""
    listed = [pods[at] for at in rng.permutation(len(pods))]
    demand = sum(one[2] * one[3] for one in listed)
    while demand < LOAD * most_milli:
        one = pods[rng.integers(len(pods))]
        listed.append(one)
        demand += one[2] * one[3]
    while demand > LOAD * most_milli:
        one = listed.pop()
        demand -= one[2] * one[3]
    return listed


class Cluster:
    """The free CPU, memory and GPU milli of every node."""

    def __init__(self, nodes):
        self.models = np.array([one["model"] for one in nodes])
        self.cpu = np.array([int(one["cpu_milli"]) for one in nodes])
        self.memory = np.array([int(one["memory_mib"]) for one in nodes])
        count = np.array([int(one["gpu"]) for one in nodes])
        self.gpus = np.where(np.arange(MOST_GPUS) < count[:, None], 1000, 0)
        self.most = (self.cpu.max(), self.memory.max(), 1000 * count.max())
        self.total = int(1000 * count.sum())

    def able(self, pod):
        """The indices of the nodes on which a pod fits."""
        cpu, memory, number, milli, allowed = pod
        fits = (self.cpu >= cpu) & (self.memory >= memory)
        if number:
            fits &= (self.gpus >= milli).sum(axis=1) >= number
        if allowed:
            fits &= np.isin(self.models, allowed)
        return np.flatnonzero(fits)

    def place(self, node, pod, rng):
        """Put a pod on a node: a part of a GPU on the fullest GPU that has room, or with ``rng`` on any."""
        cpu, memory, number, milli, _ = pod
        self.cpu[node] -= cpu
        self.memory[node] -= memory
        if number:
            room = np.flatnonzero(self.gpus[node] >= milli)
            order = rng.permutation(room) if rng is not None else room[np.argsort(self.gpus[node][room], kind="stable")]
            self.gpus[node][order[:number]] -= milli


def allocated(nodes, listed, policy, rng):
    """The allocation in percent after all pods have arrived."""
    cluster, placed = Cluster(nodes), 0
    for pod in listed:
        able = cluster.able(pod)
        if not len(able):
            continue
        if policy == "random":
            node = rng.choice(able)
        else:
            left = cluster.cpu[able] / cluster.most[0] + cluster.memory[able] / cluster.most[1] + cluster.gpus[
                able].sum(axis=1) / cluster.most[2]
            node = able[left.argmin()]
        cluster.place(node, pod, rng if policy == "random" else None)
        placed += pod[2] * pod[3]
    return 100 * placed / cluster.total


def bound(nodes, listed):
    """The most that any placement of these pods allocates, in percent."""
    cluster = Cluster(nodes)
    models = sorted(set(cluster.models))
    kinds = Counter(listed)
    columns = [(number, kind, model) for number, kind in enumerate(kinds) for model in models
               if not kind[4] or model in kind[4]]
    supply = {model: [getattr(cluster, part)[cluster.models == model].sum() for part in ("cpu", "memory", "gpus")]
              for model in models}
    matrix = np.zeros((3 * len(models) + len(kinds), len(columns)))
    for at, (number, kind, model) in enumerate(columns):
        first = 3 * models.index(model)
        matrix[first : first + 3, at] = kind[0], kind[1], kind[2] * kind[3]
        matrix[3 * len(models) + number, at] = 1
    limits = [*np.concatenate([supply[model] for model in models]), *kinds.values()]
    found = linprog([-kind[2] * kind[3] for _, kind, _ in columns], A_ub=matrix, b_ub=limits, method="highs")
    return -100 * found.fun / cluster.total


def main() -> None:
    """Print a row per policy and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--policies", nargs="+", default=["random", "best-fit"], choices=("random", "best-fit"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(42, 52)))
    parser.add_argument("--nodes", type=int, help="only the first so many nodes")
    results.add_results(parser)
    options = parser.parse_args()
    nodes = rows(options.folder / "openb_node_list_gpu_node.csv.xz")[: options.nodes]
    pods = pods_of(options.folder / f"openb_pod_list_{options.workload}.csv.xz")
    published = {one["policy"]: float(one["allocation_mean"]) for one in rows(options.folder / "fgd_allocation.csv")
                 if one["workload"] == options.workload}
    found = []
    for seed in options.seeds:
        listed = arriving(pods, Cluster(nodes).total, np.random.default_rng(seed))
        most = bound(nodes, listed)
        for policy in options.policies:
            share = allocated(nodes, listed, policy, np.random.default_rng(seed))
            found.append([options.workload, policy, seed, share, published[NAMES[policy]], most])
    for policy in ("random", "best-fit", "fgd"):
        own = [one for one in found if one[1] == policy]
        most = mean(one[5] for one in found)
        found.append([options.workload, policy, "mean", mean(one[3] for one in own) if own else "",
                      published[NAMES[policy]], most])
    print_table(COLUMNS, found)
    results.write(options.results, "openb", COLUMNS, found, options.seeds)


if __name__ == "__main__":
    main()
