"""Continuous batching with chunked prompts and paged KV memory, replayed iteration by iteration."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@compiled
def replayed(arrived: Floats, prompt: Ints, output: Ints, begun: Ints, common: Ints, costs: Floats, limits: Ints
             ) -> tuple[Floats, Floats]:
    """When the first and the last token of every request reach the client, in ms.

    The front end takes requests in one after another. An iteration first computes a token of every sequence whose
    prompt is done. Then it continues prompts in the order of admission, and then it admits waiting requests. The limits
    are on the tokens of an iteration, on sequences, and on KV blocks. If blocks run out, the sequence admitted last
    gives up its blocks. Its prompt and its tokens are computed again later, except its first ``begun`` tokens, which
    the server's prefix cache holds. ``common`` of their blocks are shared by all requests; they are not part of the
    blocks in ``limits``. ``costs`` are in the order of `tokens.COEFFICIENTS`.
    """
    step, weights, token, several, sequence = costs[0], costs[1], costs[2], costs[3], costs[4]
    context, prefill, attended, request_ms, read = costs[5], costs[6], costs[7], costs[8], costs[9]
    delivery, delivery_sequence, experts, launch, active = costs[11], costs[12], costs[14], costs[15], costs[16]
    blocks, block, most, budget = limits[0], limits[1], limits[2], limits[3]
    total = len(arrived)
    ready = np.empty(total)
    busy = 0.0
    for one in range(total):
        busy = max(busy, arrived[one]) + request_ms + read * prompt[one]
        ready[one] = busy
    first, last = np.full(total, np.inf), np.full(total, np.inf)
    computed, produced, owned = np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.int64)
    chunk = np.zeros(total, np.int64)
    running = np.empty(most, np.int64)
    waiting = np.empty(total, np.int64)  # a stack of sequences that gave up their memory; they come before new requests
    count, back, fresh, done, free, now = 0, 0, 0, 0, blocks, 0.0
    while done < total:
        if count == 0 and back == 0 and fresh < total and ready[fresh] > now:
            now = ready[fresh]
        left, at = budget, 0
        while at < count:  # running sequences go on, in order
            one = running[at]
            wanted = min(prompt[one] + produced[one] - computed[one], left)
            chunk[one] = wanted
            need = (computed[one] + wanted + block - 1) // block - common[one] - owned[one]
            while need > free and count > at:
                victim = running[count - 1]
                count -= 1
                free += owned[victim]
                left += chunk[victim] if count < at else 0
                owned[victim], computed[victim], chunk[victim] = 0, 0, 0
                waiting[back] = victim
                back += 1
            if at < count:
                free -= need
                owned[one] += need
                left -= wanted
                at += 1
        while count < most and left > 0 and (back > 0 or (fresh < total and ready[fresh] <= now)):
            one = waiting[back - 1] if back > 0 else fresh
            wanted = min(prompt[one] + produced[one] - begun[one], left)
            need = (begun[one] + wanted + block - 1) // block - common[one]
            if need > free:
                break
            if back > 0:
                back -= 1
            else:
                fresh += 1
            free -= need
            owned[one], chunk[one], computed[one] = need, wanted, begun[one]
            left -= wanted
            running[count] = one
            count += 1
        tokens, cached, pairs, prompts, sequences = 0, 0, 0.0, False, 0
        for at in range(count):
            one = running[at]
            if chunk[one] == 0:
                continue
            sequences += 1
            tokens += chunk[one]
            cached += computed[one] + chunk[one]
            if chunk[one] > 1 or computed[one] < prompt[one]:
                prompts = True
                pairs += float(chunk[one]) * computed[one] + chunk[one] * (chunk[one] + 1) / 2
        taken = step + max(weights, token * tokens) + several * (1 - 1 / max(sequences, 1)) + sequence * sequences
        taken += context * cached + experts * (1 - (1 - active) ** tokens)
        if prompts:
            taken += prefill + attended * pairs
            if tokens > 512:  # up to here servers replay recorded kernels and launch none
                taken = max(taken, launch)
        now += taken
        kept = 0
        for at in range(count):
            one = running[at]
            computed[one] += chunk[one]
            if chunk[one] > 0 and computed[one] == prompt[one] + produced[one]:
                produced[one] += 1
                if produced[one] == 1:
                    first[one] = now + delivery + delivery_sequence * sequences**1.5
                if produced[one] == output[one]:
                    last[one] = now
                    free += owned[one]
                    done += 1
                    continue
            running[kept] = one
            kept += 1
        count = kept
    return first, last
