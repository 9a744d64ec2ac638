"""Explicit GPUs for the assignment models: how many copies of each fleet entry, and what is said about all of them.

A *program* takes variables and rows: ``whole(name, most)`` is a whole number; ``level(name, terms, beyond, most)`` an
amount that is neither below 0 nor below ``terms - beyond``, given as a pair of its unit and a variable;
``exactly(terms, value)``, ``at_most(terms, limit, when)`` and ``minimise(terms)`` take terms (coefficient, variable);
``hint(variable, value)`` and ``solve(limit_s, found)`` search. Made with ``safe`` it rounds against a plan, else in its
favour.
"""

import math

import numpy as np

TOLERANCE = 1e-9
"""Relative excess that counts as rounding: the verifier's own tolerance."""


class Candidates:
    """What all candidates have in common; ``own`` is (workloads, entries), see ``copies``."""

    def copies(self, start=None):
        """(GPUs,) fleet entry of every GPU that may be used.

        ``own[w, e]`` GPUs of entry e can serve workload w with no other beside it. A plan with more GPUs of an
        entry than all its workloads need so can be rebuilt with that many, so an optimal one needs no more; nor more
        than pay for a plan that is known.
        """
        fleet, finite = self.instance.fleet, np.where(np.isfinite(self.own), self.own, 0)
        weight = np.array([self.instance.weight(entry) for entry in fleet])
        count = np.array([np.inf if entry.count is None else entry.count for entry in fleet])
        unlimited = np.where(np.isinf(count), 1.0, np.inf)
        known = self.instance.value(start) if start else np.inf
        with np.errstate(invalid="ignore", divide="ignore"):
            separate = np.nan_to_num(self.own * weight * unlimited, nan=np.inf, posinf=np.inf).min(axis=1).sum()
            paid = np.nan_to_num(min(known, separate) * (1 + TOLERANCE) / weight, nan=np.inf, posinf=np.inf)
        most = np.minimum(np.minimum(count, finite.sum(axis=0)), np.floor(paid))
        return np.repeat(np.arange(len(fleet)), most.astype(int))


class Rows:
    """What both models have: GPUs ``g`` of fleet entries ``entry[g]``, used or not, at some price."""

    def __init__(self, candidates, copies, program, name):
        self.candidates, self.program, self.name = candidates, program, name
        self.instance, self.copies = candidates.instance, copies
        self.entry = [self.instance.fleet[e] for e in copies]
        self.gpus, self.workloads = range(len(copies)), range(len(self.instance.workloads))
        self.used = [program.whole(f"used_{g}", 1) for g in self.gpus]

    def alike(self, gpu):
        """The GPU before this one, when both are of one fleet entry; else None."""
        return gpu - 1 if gpu and self.copies[gpu - 1] == self.copies[gpu] else None

    def minimise_weight(self, bound):
        """Objective: price per hour, or number, of the GPUs; never below a bound that is known."""
        terms = [(self.instance.weight(entry), used) for entry, used in zip(self.entry, self.used, strict=True)]
        self.program.minimise(terms)
        most = max((weight for weight, _ in terms), default=0) or 1
        self.program.at_most([(-weight / most, used) for weight, used in terms], -bound / most * (1 - TOLERANCE))

    def numbered(self, plan, key):
        """(g, GPU) of a plan's GPUs, those of one entry in ascending order of a key; what finds no copy is left."""
        entries = self.instance.entries_of(plan)
        for e in set(self.copies):
            mine = sorted((gpu for gpu, entry in zip(plan.gpus, entries, strict=True) if entry == e), key=key)
            yield from zip([g for g in self.gpus if self.copies[g] == e], mine, strict=False)


def rounded_up(total, weights):
    """A bound on the objective from a fractional one: GPUs of one weight come in whole numbers."""
    if len(set(weights)) == 1 and weights[0] > 0:
        return weights[0] * math.ceil(total / weights[0] - TOLERANCE)
    return total * (1 - TOLERANCE)
