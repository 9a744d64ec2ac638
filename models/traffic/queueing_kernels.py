"""Compiled loops of the queueing rule: how late tasks are at a load, and the load that is not too high."""

import math

from provision.models.base.compiled import compiled

NEGLIGIBLE = 1e-10
"""Terms that have fallen below this are left out, and with them all that follow."""

VANISHING = 1e-20
"""A tail that starts with a smaller probability is left out."""

BISECTIONS = 24


@compiled
def most_load(batch, processes, patience, late, highest):
    """Largest part of its throughput, up to ``highest``, that a replica carries with at most ``late`` tasks late.

    ``patience`` is the latency budget less the batch latency, in hold times; ``late`` a fraction.
    """
    if late_share(highest, batch, processes, patience, late) <= late:
        return highest
    low, high = 0.0, highest
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if late_share(middle, batch, processes, patience, late) <= late:
            low = middle
        else:
            high = middle
    return low


@compiled
def late_share(load, batch, processes, patience, late):
    """Bound on the share of tasks that wait for longer than their patience; beyond ``late`` it stops counting."""
    rate = load * batch * processes
    judged = (batch + 1) // 2 if processes * patience >= 1 else 1
    largest_at = (2 + load / (1 - load)) * patience
    share, term, rounds = 0.0, 1.0, math.floor(patience)
    while share <= late and (term > NEGLIGIBLE or rounds <= largest_at):
        for last in range(processes):
            window = rounds + 1 - (processes - last) * patience
            ahead = (rounds * processes + last) * batch
            term = beyond(rate * window, ahead, judged) if window > 0 else 0.0
            share += term
        rounds += 1
    return share


@compiled
def beyond(mean, ahead, judged):
    """Probability that a Poisson number exceeds ``ahead`` + j, averaged over j from 0 to ``judged`` - 1.

    That is the mean of min(i, judged) / judged over the numbers ahead + i. Where they are likely, that for j = 0.
    """
    if mean > ahead:
        return 1 - math.exp(-mean)
    number = ahead + 1
    chance = math.exp(number * math.log(mean) - mean - math.lgamma(number + 1.0))
    total, part = 0.0, 1
    while chance > max(VANISHING, NEGLIGIBLE * total):
        total += chance * min(part, judged)
        number, part = number + 1, part + 1
        chance *= mean / number
    return total / judged
