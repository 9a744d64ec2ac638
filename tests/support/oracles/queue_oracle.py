"""A slice played without arrays, heaps or tables of next events: slow, and written to be read against the rules."""

import math


def play(replicas, hold_ms):
    """Answers of all requests.

    Parameters
    ----------
    replicas
        Dicts with ``arrivals`` (ms), ``batch``, ``processes``, ``delay``, ``limit``.
    hold_ms
        Function of (busy counts, replica, size): time of a batch while these are busy.

    Returns
    -------
    list of list
        For every replica (arrival, answer) of its requests, the answer None when dropped.
    """
    waiting, running = [[] for _ in replicas], []
    coming = [list(one["arrivals"]) for one in replicas]
    answers, now = [[] for _ in replicas], 0.0
    while any(coming) or any(waiting) or running:
        busy = tuple(sum(job["replica"] == at for job in running) for at in range(len(replicas)))
        speed = [1 / hold_ms(busy, job["replica"], len(job["requests"])) for job in running]
        ends = [now + job["left"] / rate for job, rate in zip(running, speed, strict=True)]
        arrivals = [times[0] if times else math.inf for times in coming]
        starts = [_start(now, one, queue, count) for one, queue, count in zip(replicas, waiting, busy, strict=True)]
        moment = min([*ends, *arrivals, *starts])
        for job, rate in zip(running, speed, strict=True):
            job["left"] -= (moment - now) * rate
        now = moment
        if now in ends:
            job = running.pop(ends.index(now))
            answers[job["replica"]] += [(arrival, now) for arrival in job["requests"]]
        elif now in arrivals:
            at = arrivals.index(now)
            arrival, full = coming[at].pop(0), len(waiting[at]) >= replicas[at]["limit"]
            (answers[at] if full else waiting[at]).append((arrival, None) if full else arrival)
        else:
            at = starts.index(now)
            taken, waiting[at] = waiting[at][: replicas[at]["batch"]], waiting[at][replicas[at]["batch"] :]
            running.append({"replica": at, "requests": taken, "left": 1.0})
    return answers


def _start(now, replica, queue, busy):
    """When the next batch of a replica may start."""
    if not queue or busy == replica["processes"]:
        return math.inf
    return now if len(queue) >= replica["batch"] else max(now, queue[0] + replica["delay"])
