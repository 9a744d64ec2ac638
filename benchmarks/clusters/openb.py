"""Alibaba's openb cluster filled pod by pod as in FGD's experiments, and the most that any placement could allocate.

Run as ``python benchmarks/clusters/openb.py FOLDER [--workload default] [--seeds N ...] [--policies P ...]``. FOLDER
has the tables of nodes and pods (``openb_node_list_gpu_node.csv.xz``, ``openb_pod_list_WORKLOAD.csv.xz``) and the
published ratios (``fgd_allocation.csv``). As in the experiments (FGD, USENIX ATC 2023), pods are shuffled, further pods
are drawn with replacement until the demand is 1.3 times the cluster's GPUs, and pods arrive one by one; none leaves,
and one that fits nowhere is dropped. The allocation is the GPUs of the placed pods over all GPUs, in percent.

- *random*: any node that fits, any GPU there.
- *best-fit*: the node with the least CPU and GPUs left, each as a part of the most of a node; the fullest GPU there.
- *fgd*: where the GPUs that a typical pod cannot use grow least (the paper's fragmentation gradient descent, written
  anew from its text): of the GPUs left on a node, all count for a pod that does not fit there, and those too small for
  it for one that does. Typical are the commonest pods, nineteen of twenty, each with its share. As in the paper's
  program, growth g (in milli) counts in whole points of 100 / (1 + exp(g / 1000)); ties go to the first.

The bound is a linear program: pods may be divided over nodes and within them, and only CPUs, memory, GPUs and the GPU
models that a pod accepts count, summed over the nodes of a model. No placement of the same pods allocates more.

With ``--moves``, pods that were dropped are then admitted after all, the largest first, where pods that stand can make
room by moving elsewhere; that gives the allocation that so many moves reach. They are found by greed. How few could
admit the same pods is bounded by a relaxation: a node takes none of them unless a pod leaves it, since none fits
anywhere; then each GPU takes what fits into its free part and that of the pods that leave (a pod on several GPUs leaves
each for its share of a move), no more in all than the node's CPUs allow with those of the largest pods that leave.
Memory and where leavers go do not count, and a node may be used in part.
"""

import argparse
import csv
import lzma
import sys
from collections import Counter, defaultdict
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
from numba import njit
from scipy.optimize import linprog

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import results

from provision.draw.output import print_table

LOAD = 1.3
MOST_GPUS = 8
"""The load of the experiments, and the most GPUs of a node, which are also the parts in which moves are counted."""
NAMES = {"random": "01-Random", "best-fit": "05-BestFit", "fgd": "06-FGD"}
TYPICAL = 0.95
"""The part of all pods that typical ones make up, the commonest first."""
TRIES = 40
"""The most places that are tried for a pod that others make room for."""
COLUMNS = ("workload", "policy", "seed", "allocation", "published", "bound", "after_moves", "moves", "fewest",
           "admitted")


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
        self.most = (self.cpu.max(), 1000 * count.max())
        self.total = int(1000 * count.sum())
        self.standing, self.on, self.at = {}, defaultdict(set), defaultdict(set)

    def able(self, pod):
        """The indices of the nodes on which a pod fits."""
        cpu, memory, number, milli, allowed = pod
        fits = (self.cpu >= cpu) & (self.memory >= memory)
        if number:
            fits &= (self.gpus >= milli).sum(axis=1) >= number
        if allowed:
            fits &= np.isin(self.models, allowed)
        return np.flatnonzero(fits)

    def fitting(self, node, pod):
        """The GPUs of a node that a pod takes there: the fullest that have room."""
        room = np.flatnonzero(self.gpus[node] >= pod[3])
        return room[np.argsort(self.gpus[node][room], kind="stable")][: pod[2]]

    def fullest(self, able):
        """The node with least left of those that are able to take a pod."""
        left = self.cpu[able] / self.most[0] + self.gpus[able].sum(axis=1) / self.most[1]
        return able[left.argmin()]

    def place(self, name, pod, node, gpus):
        """Put a pod on GPUs of a node."""
        self.cpu[node] -= pod[0]
        self.memory[node] -= pod[1]
        self.gpus[node][gpus] -= pod[3]
        self.standing[name] = pod, node, tuple(gpus)
        self.at[node].add(name)
        for gpu in gpus:
            self.on[node, gpu].add(name)

    def take_away(self, name):
        """Take a pod away; returns it with its place."""
        pod, node, gpus = self.standing.pop(name)
        self.cpu[node] += pod[0]
        self.memory[node] += pod[1]
        self.gpus[node][list(gpus)] += pod[3]
        self.at[node].discard(name)
        for gpu in gpus:
            self.on[node, gpu].discard(name)
        return pod, node, gpus

    @property
    def allocation(self):
        """The GPUs of the placed pods, in percent of all."""
        return 100 * sum(pod[2] * pod[3] for pod, *_ in self.standing.values()) / self.total


def typical(pods, models):
    """The typical pods as arrays: CPU, GPUs, milli of each, whether each of these GPU models is accepted, and share."""
    counted = Counter((cpu, number, milli, allowed) for cpu, _, number, milli, allowed in pods).most_common()
    before = np.cumsum([0, *(many for _, many in counted)])[:-1]
    kinds = [kind for kind, at in zip(counted, before, strict=True) if at < TYPICAL * len(pods)]
    accepts = np.array([[not kind[3] or model in kind[3] for model in models] for kind, _ in kinds])
    share = np.array([many for _, many in kinds], float)
    return (*(np.array([kind[part] for kind, _ in kinds]) for part in range(3)), accepts, share / share.sum())


@njit
def unusable(cpu, gpus, model, kinds):
    """The milli of GPUs on a node that a typical pod cannot use."""
    left, lost = gpus.sum(), 0.0
    for kind in range(len(kinds[4])):
        number, milli = kinds[1][kind], kinds[2][kind]
        fits, small = 0, 0
        for free in gpus:
            if free >= milli:
                fits += 1
            else:
                small += free
        able = number > 0 and kinds[0][kind] <= cpu and fits >= number and kinds[3][kind, model]
        lost += kinds[4][kind] * (small if able else left)
    return lost


@njit
def steepest(able, cpus, gpus, models, pod, kinds):
    """The node, and its first GPU for a part of one, where placing a pod makes the least unusable."""
    cpu, number, milli = pod
    best, where, which = -1, -1, -1
    for node in able:
        now = unusable(cpus[node], gpus[node], models[node], kinds)
        for gpu in range(gpus.shape[1]):
            if number == 1 and (gpus[node, gpu] < milli or gpus[node, gpu] in gpus[node, :gpu]):
                continue
            then = gpus[node].copy()
            left = number
            for other in range(gpus.shape[1]):
                if left and then[other] >= milli and (number > 1 or other == gpu):
                    then[other] -= milli
                    left -= 1
            points = int(100 / (1 + np.exp((unusable(cpus[node] - cpu, then, models[node], kinds) - now) / 1000)))
            if points > best:
                best, where, which = points, node, gpu
            if number != 1:
                break
    return where, which


def filled(nodes, listed, policy, rng, kinds):
    """The cluster after all pods have arrived, and those that were dropped."""
    cluster, dropped = Cluster(nodes), []
    models = np.unique(cluster.models, return_inverse=True)[1]
    for name, pod in enumerate(listed):
        able = cluster.able(pod)
        if not len(able):
            dropped.append((name, pod))
        elif policy == "random":
            node = rng.choice(able)
            cluster.place(name, pod, node, rng.permutation(np.flatnonzero(cluster.gpus[node] >= pod[3]))[: pod[2]])
        elif policy == "best-fit":
            node = cluster.fullest(able)
            cluster.place(name, pod, node, cluster.fitting(node, pod))
        else:
            node, gpu = steepest(able, cluster.cpu, cluster.gpus, models, (pod[0], pod[2], pod[3]), kinds)
            cluster.place(name, pod, node, [gpu] if pod[2] == 1 else cluster.fitting(node, pod))
    return cluster, dropped


def moved(cluster, dropped):
    """Admit dropped pods where others can make room; returns the number of moves and the pods admitted."""
    moves, admitted, hopeless = 0, [], set()
    for name, pod in sorted(dropped, key=lambda one: -one[1][2] * one[1][3]):
        able = cluster.able(pod)
        if len(able):
            node = cluster.fullest(able)
            cluster.place(name, pod, node, cluster.fitting(node, pod))
            admitted.append(pod)
        elif pod[2] and pod not in hopeless:
            made = next((made for way in in_the_way(cluster, pod)[:TRIES]
                         if (made := make_room(cluster, name, pod, *way)) is not None), None)
            if made is None:
                hopeless.add(pod)
            else:
                moves += made
                admitted.append(pod)
    return moves, admitted


def in_the_way(cluster, pod):
    """Where a pod would fit if others moved, those with fewest first: (node, GPUs, the others)."""
    cpu, memory, number, milli, allowed = pod
    found = []
    for node in range(len(cluster.cpu)):
        if allowed and cluster.models[node] not in allowed:
            continue
        ways = sorted((way for gpu in range(MOST_GPUS) if (way := crowd(cluster, node, gpu, milli)) is not None),
                      key=lambda way: way[0])[:number]
        others = [name for _, _, names in ways for name in names]
        lacking = cpu - cluster.cpu[node] - sum(cluster.standing[name][0][0] for name in others)
        for name in sorted(cluster.at[node] - {*others}, key=lambda name: -cluster.standing[name][0][0]):
            if lacking > 0 and cluster.standing[name][0][2] <= 1:
                others.append(name)
                lacking -= cluster.standing[name][0][0]
        gone = [cluster.standing[name][0] for name in others]
        if len(ways) == number and cluster.cpu[node] + sum(one[0] for one in gone) >= cpu \
                and cluster.memory[node] + sum(one[1] for one in gone) >= memory:
            found.append((len(others), sum(one[3] for one in gone), node, [gpu for _, gpu, _ in ways], others))
    return [one[2:] for one in sorted(found)]


def crowd(cluster, node, gpu, milli):
    """The fewest pods whose move leaves so much of a GPU free: (their number and milli, the GPU, their names)."""
    free = cluster.gpus[node][gpu]
    here = sorted((cluster.standing[name][0][3], name) for name in cluster.on[node, gpu])
    if free + sum(size for size, _ in here) < milli or any(cluster.standing[name][0][2] > 1 for _, name in here):
        return None
    names, lacking = [], milli - free
    while lacking > 0:
        size, name = next((one for one in here if one[0] >= lacking), here[-1])
        here.remove((size, name))
        names.append(name)
        lacking -= size
    return (len(names), milli - free), gpu, names


def make_room(cluster, name, pod, node, gpus, others):
    """Move others elsewhere and place a pod; returns the number of moves, or None, with nothing changed, if one of them
    fits nowhere else."""
    before = [(other, *cluster.take_away(other)) for other in others]
    cluster.place(name, pod, node, gpus)
    for number, (other, one, *_) in enumerate(before):
        able = cluster.able(one)
        if not len(able):
            for done, *_ in before[:number]:
                cluster.take_away(done)
            cluster.take_away(name)
            for back in before:
                cluster.place(*back[:3], list(back[3]))
            return None
        there = cluster.fullest(able)
        cluster.place(other, one, there, cluster.fitting(there, one))
    return len(others)


def fewest(cluster, admitted):
    """The fewest moves with which these pods, of which none fits now, can be admitted, by the relaxation above."""
    steps = []
    for model in np.unique(cluster.models) if admitted else ():
        able = [pod for pod in admitted if pod[2] and (not pod[4] or model in pod[4])]
        parts, fits = sorted({pod[3] for pod in able}), np.zeros(1001, int)
        for room in range(1001):
            fits[room] = max((part + fits[room - part] for part in parts if part <= room), default=0)
        each = min((pod[0] / (pod[2] * pod[3]) for pod in able), default=1.0)
        for node in np.flatnonzero(cluster.models == model):
            best = np.zeros(1, int)
            for gpu in range(MOST_GPUS):
                best = both(best, fits[freed(cluster, node, gpu)])
            cpus = sorted((cluster.standing[name][0][0] for name in cluster.at[node]), reverse=True)
            by_cpu = (cluster.cpu[node] + np.cumsum([0, *cpus])) / max(each, 1e-9)
            most = np.maximum.accumulate(np.append(best, np.full(MOST_GPUS * len(cpus), best.max())))[::MOST_GPUS]
            steps += hull(np.minimum(most[: len(by_cpu)], by_cpu))
    wanted, moves = sum(pod[2] * pod[3] for pod in admitted), 0.0
    for gain in sorted(steps, reverse=True):
        if wanted <= 0:
            break
        moves, wanted = moves + min(1.0, wanted / gain), wanted - gain
    return int(np.ceil(moves - 1e-9))


def freed(cluster, node, gpu):
    """The most milli that are free on a GPU if so many eighths of a move are spent there."""
    most = np.array([cluster.gpus[node][gpu]])
    for name in cluster.on[node, gpu]:
        (*_, number, size, _), *_ = cluster.standing[name]
        price = MOST_GPUS // number
        most = np.maximum(np.append(most, np.full(price, most[-1])), np.append(np.full(price, 0), most + size))
    return np.minimum(most, 1000)


def both(one, other):
    """The most that two have together, by eighths spent on both."""
    most = np.zeros(len(one) + len(other) - 1, int)
    for spent, had in enumerate(one):
        most[spent : spent + len(other)] = np.maximum(most[spent : spent + len(other)], had + other)
    return most


def hull(most):
    """What each move more brings by the least concave function above what a node takes, nothing before the first."""
    points = [(0, 0.0)]
    for moves in range(1, len(most)):
        while len(points) > 1 and (most[moves] - points[-1][1]) * (points[-1][0] - points[-2][0]) >= (
                points[-1][1] - points[-2][1]) * (moves - points[-1][0]):
            points.pop()
        points.append((moves, most[moves]))
    return [(high - low) / (after - before) for (before, low), (after, high) in pairwise(points)
            for _ in range(after - before) if high > low]


def bound(nodes, listed):
    """The most that any placement of these pods allocates, in percent."""
    cluster, kinds = Cluster(nodes), Counter(listed)
    models = sorted(set(cluster.models))
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
    parser.add_argument("--policies", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--moves", type=int, default=0, help="for so many seeds also move pods to admit those dropped")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(42, 52)))
    parser.add_argument("--nodes", type=int, help="only the first so many nodes")
    results.add_results(parser)
    options = parser.parse_args()
    nodes = rows(options.folder / "openb_node_list_gpu_node.csv.xz")[: options.nodes]
    pods = pods_of(options.folder / f"openb_pod_list_{options.workload}.csv.xz")
    published = {one["policy"]: float(one["allocation_mean"]) for one in rows(options.folder / "fgd_allocation.csv")
                 if one["workload"] == options.workload}
    found, kinds = [], typical(pods, sorted({one["model"] for one in nodes}))
    for count, seed in enumerate(options.seeds):
        listed = arriving(pods, Cluster(nodes).total, np.random.default_rng(seed))
        most = bound(nodes, listed)
        for policy in options.policies:
            cluster, dropped = filled(nodes, listed, policy, np.random.default_rng(seed), kinds)
            row, told = [options.workload, policy, seed, cluster.allocation, published[NAMES[policy]], most], [None] * 4
            if count < options.moves:
                before, (moves, admitted) = deepcopy(cluster), moved(cluster, dropped)
                told = [cluster.allocation, moves, fewest(before, admitted), len(admitted)]
            found.append([*row, *told])
    for policy in options.policies:
        own = [one for one in found if one[1] == policy]
        means = [mean(told) if (told := [one[at] for one in own if one[at] is not None]) else None
                 for at in range(3, len(COLUMNS))]
        found.append([options.workload, policy, "mean", *means])
    print_table(COLUMNS, found)
    results.write(options.results, "openb", COLUMNS, found, options.seeds)


if __name__ == "__main__":
    main()
