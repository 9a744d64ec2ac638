"""Continuous batching with chunked prompts and paged KV memory, replayed iteration by iteration at several servers."""

import numpy as np
from numpy.typing import NDArray

from .queues import compiled, fewest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUTED, FRESH, BACK, COUNT, FREE, GONE, LEAVING = range(7)
"""The whole numbers that describe a server: requests sent to it, the next of them that it admits, sequences that gave
up their memory, running sequences, free KV blocks, requests answered, and how many of these in its last iteration.
"""
COEFFICIENTS = ("step", "weights", "token", "several", "sequence", "context", "prefill", "attended", "request", "read",
                "idle", "delivery", "delivery_sequence", "hiccup", "experts", "launch")
"""The names of the coefficients that are times in ms. After them comes the fraction of the experts that one token uses.
"""


@compiled
def replayed(
    arrived: Floats, prompt: Ints, output: Ints, begun: Ints, common: Ints, cached: bool, owner: Ints, weight: Floats,
    costs: Floats, limits: Ints,
) -> tuple[Floats, Floats]:
    """(requests,) each, when the first and the last token of every request reach the client, in ms.

    Parameters
    ----------
    arrived, prompt, output
        (requests,) the ascending arrival times in ms, and the tokens of prompts and answers.
    begun, common
        (requests,) the tokens of each prompt that the server's prefix cache holds, and the number of their blocks that
        all requests share. Shared blocks are not part of the blocks in ``limits``.
    cached
        Whether requests come with the KV cache of their prompt and with their first token, as in a decode pool.
    owner
        (requests,) the server of every request; or nothing, (0,), if each request goes to the server with the fewest
        requests per weight when it arrives.
    weight
        (servers,) the weights; a server with weight 0 gets no request.
    costs
        (servers, coefficients) the coefficients in the order of `COEFFICIENTS`.
    limits
        (servers, 6) the KV blocks, tokens per block, most sequences and most tokens of an iteration of every server, 1
        if it computes prompts alone, and 1 if it chooses the requests of an iteration when the one before it begins.
    """
    total, servers = len(arrived), len(weight)
    ready, busy = np.empty(total), np.zeros(servers)
    first, last = np.full(total, np.inf), np.full(total, np.inf)
    known = begun.copy()
    work = np.zeros((4, total), np.int64)  # tokens computed, tokens produced, blocks owned, tokens of this iteration
    if cached:
        work[1, :] = 1
    queue = np.full((2, total), -1)  # the next request of the same server; a stack of those that gave up their memory
    ends = np.full((2, servers), -1)  # the next request that the server admits, and the last that was sent to it
    state, now, running = np.zeros((servers, 7), np.int64), np.zeros(servers), np.zeros((servers, limits[:, 2].max()),
                                                                                       np.int64)
    state[:, BACK], state[:, FREE], chosen = -1, limits[:, 0], np.zeros(servers)
    held, credit = np.zeros(servers), np.zeros(servers)
    for request in range(total):
        if len(owner):
            server = owner[request]
        else:
            for one in range(servers):
                _advance(one, arrived[request], ready, prompt, output, known, common, cached, costs, limits, work,
                         queue, ends, state, now, chosen, running, first, last)
                leaving = state[one, LEAVING] if now[one] > arrived[request] else 0
                held[one] = state[one, ROUTED] - state[one, GONE] + leaving
            server = fewest(held, weight, credit)
        busy[server] = max(busy[server], arrived[request]) + costs[server, 8] + costs[server, 9] * prompt[request]
        ready[request] = busy[server]
        if ends[0, server] < 0:
            ends[0, server] = request
        else:
            queue[0, ends[1, server]] = request
        ends[1, server] = request
        state[server, ROUTED] += 1
    for one in range(servers):
        _advance(one, np.inf, ready, prompt, output, known, common, cached, costs, limits, work, queue, ends, state,
                 now, chosen, running, first, last)
    return first, last


@compiled
def _advance(
    server: int, until: float, ready: Floats, prompt: Ints, output: Ints, known: Ints, common: Ints, cached: bool,
    costs: Floats, limits: Ints, work: Ints, queue: Ints, ends: Ints, state: Ints, now: Floats,
    chosen: Floats, running: Ints, first: Floats, last: Floats,
) -> None:
    """Run all iterations of a server that begin before ``until``.

    An iteration first computes a token of every sequence whose prompt is done. Then it continues prompts in the order
    of admission, and then it admits waiting requests. If the server computes prompts alone, sequences whose prompt is
    done wait while there are prompts to compute. A server that schedules ahead admits only requests that were ready
    when its last iteration began. If blocks run out, the sequence admitted last gives up its blocks, and the iteration
    admits nobody. Its prompt and its tokens are computed again later, except those that the prefix cache holds.
    """
    computed, produced, owned, chunk = work[0], work[1], work[2], work[3]
    block, most, alone = limits[server, 1], limits[server, 2], limits[server, 4]
    of, mine = state[server], running[server]
    while True:
        if of[COUNT] == 0 and of[BACK] < 0:
            if ends[0, server] < 0:
                return
            of[LEAVING] = 0
            if ready[ends[0, server]] > chosen[server]:
                now[server] = chosen[server] = max(now[server], ready[ends[0, server]])
        if now[server] >= until:
            return
        calm = True
        for prompts_only in (True, False):
            if prompts_only and not alone:
                continue
            left, at, prompts = limits[server, 3], 0, False
            while at < of[COUNT]:  # running sequences go on, in order
                one = mine[at]
                wanted = min(prompt[one] + produced[one] - computed[one], left)
                if prompts_only and computed[one] >= prompt[one] and wanted <= 1:
                    wanted = 0
                chunk[one] = wanted
                need = max((computed[one] + wanted + block - 1) // block - common[one] - owned[one], 0)
                while need > of[FREE] and of[COUNT] > at:
                    victim = mine[of[COUNT] - 1]
                    of[COUNT] -= 1
                    of[FREE] += owned[victim]
                    owned[victim], computed[victim], chunk[victim] = 0, 0, 0
                    if cached:
                        known[victim] = 0
                    queue[1, victim] = of[BACK]
                    of[BACK], calm = victim, False
                if at < of[COUNT]:
                    of[FREE] -= need
                    owned[one] += need
                    left -= wanted
                    prompts = prompts or wanted > 0
                    at += 1
            while calm and of[COUNT] < most and left > 0:
                fresh = ends[0, server]
                if of[BACK] < 0 and (fresh < 0 or ready[fresh] > chosen[server]):
                    break
                one = of[BACK] if of[BACK] >= 0 else fresh
                wanted = min(prompt[one] + produced[one] - known[one], left)
                need = (known[one] + wanted + block - 1) // block - common[one]
                if need > of[FREE]:
                    break
                if of[BACK] >= 0:
                    of[BACK] = queue[1, one]
                else:
                    ends[0, server] = queue[0, one]
                of[FREE] -= need
                owned[one], chunk[one], computed[one] = need, wanted, known[one]
                left -= wanted
                mine[of[COUNT]] = one
                of[COUNT] += 1
                prompts = prompts or known[one] < prompt[one]
            if prompts:
                break
        chosen[server] = now[server]
        decoding = _end_iteration(server, prompt, costs, work, state, now, running)
        delivered = now[server] + (0.0 if cached else costs[server, 11]) + costs[server, 12] * decoding**1.5
        if not limits[server, 5]:
            chosen[server] = now[server]
        of[LEAVING], kept = 0, 0
        for at in range(of[COUNT]):
            one = mine[at]
            computed[one] += chunk[one]
            if chunk[one] > 0 and computed[one] == prompt[one] + produced[one]:
                produced[one] += 1
                if produced[one] == 1:
                    first[one] = delivered
                if produced[one] >= output[one]:
                    last[one] = delivered
                    of[FREE] += owned[one]
                    of[GONE] += 1
                    of[LEAVING] += 1
                    continue
            mine[kept] = one
            kept += 1
        of[COUNT] = kept


@compiled
def _end_iteration(server: int, prompt: Ints, costs: Floats, work: Ints, state: Ints, now: Floats, running: Ints
                   ) -> int:
    """Move the server's time to the end of its iteration; return the number of sequences that decoded."""
    step, weights, token, several, sequence = costs[server, :5]
    context, prefill, attended, experts = costs[server, 5], costs[server, 6], costs[server, 7], costs[server, 14]
    launch, active = costs[server, 15], costs[server, 16]
    tokens, cached, pairs, prompts, decoding = 0, 0, 0.0, False, 0
    for at in range(state[server, COUNT]):
        one = running[server, at]
        computed, chunk = work[0, one], work[3, one]
        tokens += chunk
        if chunk > 1 or (chunk == 1 and computed < prompt[one]):
            prompts = True
            pairs += float(chunk) * computed + chunk * (chunk + 1) / 2
        elif chunk == 1:
            decoding += 1
            cached += computed
    taken = step + max(weights, token * tokens) + several * (1 - 1 / max(decoding, 1)) + sequence * decoding
    taken += context * cached + experts * (1 - (1 - active) ** tokens)
    if prompts:
        taken += prefill + attended * pairs
        if tokens > 512:  # up to here servers replay recorded kernels and launch none
            taken = max(taken, launch)
    now[server] += taken
    return decoding
