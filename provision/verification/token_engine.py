"""The verifier's own replay of continuous batching: iteration by iteration and sequence by sequence, kept simple.

It shares no code with the replay that planning uses (`models/performance/tokens/batching`, which computes whole runs of
iterations at once). An iteration computes a token of every decoding sequence, and spends the rest of its token budget
on prompts, first come first served. KV memory is taken in blocks. When memory runs short, the sequence admitted last is
preempted; it computes its prompt and its tokens again later. Requests reach a decode pool with their KV cache and first
token, and decode at once. The part of a prompt that the prefix cache holds is not computed. If the data say that
prompts are computed alone, decoding sequences wait while there are prompts to compute. If they say that iterations are
scheduled ahead, an iteration admits only requests that arrived before the iteration before it began.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from provision.models.base.arrays import Bools, Floats, Ints
from provision.models.base.compiled import compiled, inner
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.requests import Limits, RequestTokens, SharedPrefix
from provision.models.traffic.arrivals import arrival_times_s
from provision.models.traffic.rule import Traffic

REQUESTS = 20_000
WARM_UP = 0.1
"""The fraction of the requests, at the start of a replay, that is not counted."""
SEEDS = range(100, 103)
"""Seeds of the replays, different from those of planning."""
HICCUPS = 0.05
"""The fraction of the first tokens that have an additional, exponentially distributed delay."""
RECORDED = 512
"""The most tokens of an iteration with prompts whose kernels are not launched one by one."""
KEPT = 4096
"""The number of results that are kept, since a plan is verified again and again, and nearly equal plans are."""


def tails_ms(data: TokenModels, model: str, profile: str, sequences: int, rate_rps: float, tokens: RequestTokens,
             limits: Limits, traffic: Traffic) -> tuple[np.ndarray, np.ndarray]:
    """Replay requests at a rate on a slice; return percentiles of their times, and the fractions that are late.

    Parameters
    ----------
    data, model, profile, sequences
        The performance data, the model, the profile of the slice, and the most sequences at a time.
    rate_rps, tokens, traffic
        The rate in requests/s, the tokens of requests, and their arrivals.
    limits
        The limits in ms, and their percentile.

    Returns
    -------
    array (3,)
        The percentiles of the time to the first token, per further token, and of the whole answer, in ms.
    array (3,)
        The fraction of the requests that exceeds each limit.
    """
    one = data.models[model].slices[profile]
    blocks = one.kv_tokens // data.engine.block_tokens
    if tokens.shared_prefix and tokens.shared_prefix.tokens:
        blocks -= tokens.shared_prefix.distinct * int(tokens.shared_prefix.tokens // data.engine.block_tokens)
    sizes = (data.engine.tokens_per_iteration, sequences, data.engine.block_tokens, blocks, data.engine.prompts_alone,
             data.engine.scheduled_ahead)
    weights = (
        one.step_ms, one.weights_ms, one.token_ms, one.several_ms, one.sequence_ms, one.context_ms, one.prefill_ms,
        one.attended_ms, one.delivery_sequence_ms, one.experts_ms, one.active_part, one.launch_ms,
    )  # fmt: skip
    front = one.request_ms, one.read_ms, one.delivery_ms + one.idle_ms, one.hiccup_ms
    return _tails_ms(rate_rps, tokens, limits, traffic, front, sizes, weights)


@lru_cache(KEPT)
def _tails_ms(rate_rps: float, tokens: RequestTokens, limits: Limits, traffic: Traffic, front: tuple[float, ...],
              sizes: tuple[int, ...], weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """What ``tails_ms`` returns, for an engine by its numbers."""
    times_ms = np.concatenate([_played(seed, rate_rps, tokens, traffic, front, np.array(sizes), np.array(weights))
                               for seed in SEEDS], axis=1)
    late = (times_ms > np.array(limits.times_ms)[:, None]).mean(axis=1)
    return np.percentile(times_ms, limits.percentile, axis=1), late


def _played(seed: int, rate_rps: float, tokens: RequestTokens, traffic: Traffic, front: tuple[float, ...],
            sizes: Ints, weights: Floats) -> np.ndarray:
    """(3, requests) the three times of every request in one replay, in ms."""
    random = np.random.default_rng(seed)
    request_ms, read_ms, around_ms, hiccup_ms = front
    sent_ms = 1000 * arrival_times_s(traffic.arrivals, rate_rps, REQUESTS / rate_rps, random)
    prompt, output = (_drawn(one.counts.levels, one.counts.tokens, len(sent_ms), random)
                      for one in (tokens.input, tokens.output))
    output = np.maximum(output, 2 if tokens.cached else 1)
    ready_ms = _taken_in(sent_ms, request_ms + read_ms * prompt)
    known, common = _begun(tokens.shared_prefix, prompt, sizes[2])
    first_ms, end_ms = _serve(ready_ms, prompt, output, known, common, sizes, weights, tokens.cached)
    later_ms = (0.0 if tokens.cached else around_ms) + tokens.transfer_ms_per_token * prompt
    unlucky = random.random(len(sent_ms)) < HICCUPS
    ttft_ms = first_ms + later_ms - sent_ms + hiccup_ms * unlucky * random.exponential(size=len(sent_ms))
    e2e_ms = end_ms + later_ms - sent_ms
    if tokens.cached:
        ttft_ms, tpot_ms = np.zeros(len(sent_ms)), e2e_ms / (output - 1)
    else:
        tpot_ms = (end_ms - first_ms) / np.maximum(output - 1, 1)
    return np.array([ttft_ms, tpot_ms, e2e_ms])[:, int(len(sent_ms) * WARM_UP) :]


def _drawn(levels: tuple[float, ...], counts: tuple[float, ...], many: int, random: np.random.Generator) -> np.ndarray:
    """Draw ``many`` numbers of tokens from a quantile function."""
    return np.maximum(np.rint(np.interp(random.random(many), levels, counts)), 1).astype(np.int64)


def _taken_in(sent_ms: np.ndarray, intake_ms: np.ndarray) -> np.ndarray:
    """The times at which requests reach the engine, in ms. The front end takes them in one after another.

    This is Lindley's recursion. All arrays have the shape (requests,); ``intake_ms`` is the front end's time per
    request.
    """
    served_ms = np.cumsum(intake_ms)
    return served_ms + np.maximum.accumulate(sent_ms - served_ms + intake_ms)


def _begun(prefix: SharedPrefix | None, prompt: Ints, block: int) -> tuple[Ints, Ints]:
    """The tokens of prompts that the prefix cache holds, and how many of their blocks all requests have in common.

    All arrays have the shape (requests,).
    """
    if prefix is None:
        return np.zeros_like(prompt), np.zeros_like(prompt)
    found = np.full(len(prompt), prefix.tokens) if prefix.tokens else np.floor(prompt * (prefix.share or 0.0))
    whole = (np.minimum(found, prompt - 1) // block).astype(np.int64)
    return whole * block, whole * bool(prefix.tokens)


@compiled
def _serve(ready_ms: Floats, prompt: Ints, output: Ints, known: Ints, common: Ints, sizes: Ints, weights: Floats,
           cached: bool) -> tuple[Floats, Floats]:
    """The times of the first and the last token of requests that reach the engine at ``ready_ms``.

    If requests come ``cached``, they have the KV cache of their prompt and their first token, and that token is not
    timed. ``known`` and ``common`` are the results of ``_begun``. In the code, ``running`` has the sequences in the
    order of admission; all but the last ones decode. ``line`` is a stack of preempted sequences.
    """
    budget, most, block, blocks, alone, ahead = sizes
    count = len(ready_ms)
    first_ms, end_ms = np.full(count, math.inf), np.zeros(count)
    computed, decodes = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    given = np.ones(count, np.int64) if cached else np.zeros(count, np.int64)
    running, line = np.zeros(most, np.int64), np.zeros(count, np.int64)
    size, again, upcoming, used, now_ms, chosen_ms = 0, 0, 0, 0, 0.0, 0.0
    while upcoming < count or size > 0 or again > 0:
        if size == 0 and again == 0 and ready_ms[upcoming] > chosen_ms:
            now_ms = chosen_ms = max(now_ms, ready_ms[upcoming])
        calm = True
        decoding, context, grown = _demand(running[:size], computed, decodes, block)
        while used + grown > blocks:
            size, again, used = _send_back(running, size, line, again, computed, decodes, common, used, block)
            decoding, context, grown = _demand(running[:size], computed, decodes, block)
            calm = False
        left, tokens, attended = budget if alone else budget - decoding, 0, 0.0
        while left > 0:
            newest = running[size - 1] if size > 0 else -1
            begun = newest >= 0 and not decodes[newest] and computed[newest] < prompt[newest] + given[newest]
            if not begun:
                waiting = again > 0 or (upcoming < count and ready_ms[upcoming] <= chosen_ms)
                if not (calm and waiting and size < most):
                    break
            request = newest if begun else line[again - 1] if again > 0 else upcoming
            if cached and again == 0 and not begun:
                if used + grown + _held(prompt[request] + 1, block) > blocks:
                    break
                running[size] = request
                size, upcoming, left, decoding = size + 1, upcoming + 1, left - 1, decoding + 1
                computed[request], decodes[request] = prompt[request], True
                used += _held(prompt[request], block)
                grown += prompt[request] % block == 0
                context += prompt[request]
                continue
            done = computed[request] if begun else known[request]
            chunk = min(prompt[request] + given[request] - done, left)
            needed = _held(done + chunk, block) - (_held(done, block) if begun else common[request])
            if used + grown + needed > blocks:
                if begun:
                    size, again, used = _send_back(running, size, line, again, computed, decodes, common, used, block)
                    calm = False
                break
            if not begun:
                running[size] = request
                size += 1
                if again > 0:
                    again -= 1
                else:
                    upcoming += 1
            computed[request] = done + chunk
            used += needed
            left -= chunk
            tokens += chunk
            attended += chunk * (done + (chunk + 1) / 2)
        halted, begun_ms = alone > 0 and tokens > 0, now_ms
        if halted:
            decoding = context = 0
        now_ms += _iteration_ms(weights, decoding, context, tokens, attended)
        chosen_ms = begun_ms if ahead else now_ms
        sent_ms = now_ms + weights[8] * decoding * math.sqrt(decoding)
        _give_tokens(running[:size], prompt, computed, decodes, given, first_ms, sent_ms, halted)
        used += 0 if halted else grown
        size, used = _let_go(running, size, output, computed, given, common, end_ms, sent_ms, used, block)
    return first_ms, end_ms


@inner
def _demand(running: Ints, computed: Ints, decodes: Bools, block: int) -> tuple[int, int, int]:
    """The number of sequences that decode, the tokens in their KV caches, and the blocks that their next tokens take.
    """
    decoding, context, grown = 0, 0, 0
    for request in running:
        if decodes[request]:
            decoding += 1
            context += computed[request]
            grown += computed[request] % block == 0
    return decoding, context, grown


@inner
def _give_tokens(running: Ints, prompt: Ints, computed: Ints, decodes: Bools, given: Ints, first_ms: Floats,
                 sent_ms: float, halted: bool) -> None:
    """End an iteration at ``sent_ms``.

    Decoding sequences get a token unless they are ``halted``. Sequences whose prompt has just been computed (after a
    preemption, with the tokens that they had got) get their next token and decode from now on. ``computed``,
    ``decodes``, ``given`` and ``first_ms`` are updated.
    """
    for request in running:
        if decodes[request] and halted:
            continue
        if decodes[request]:
            computed[request] += 1
        elif computed[request] == prompt[request] + given[request]:
            decodes[request] = True
            first_ms[request] = min(first_ms[request], sent_ms)
        given[request] += decodes[request]


@inner
def _let_go(running: Ints, size: int, output: Ints, computed: Ints, given: Ints, common: Ints, end_ms: Floats,
            sent_ms: float, used: int, block: int) -> tuple[int, int]:
    """Remove sequences whose answer is complete at ``sent_ms``; return how many are left, and the blocks in use."""
    kept = 0
    for request in running[:size]:
        if given[request] < output[request]:
            running[kept] = request
            kept += 1
        else:
            used -= _held(computed[request], block) - common[request]
            end_ms[request] = sent_ms
    return kept, used


@inner
def _send_back(running: Ints, size: int, line: Ints, again: int, computed: Ints, decodes: Bools, common: Ints,
               used: int, block: int) -> tuple[int, int, int]:
    """Preempt the sequence admitted last: it gives its blocks back, and it is the next to be admitted."""
    request = running[size - 1]
    used -= _held(computed[request], block) - common[request]
    computed[request], decodes[request] = 0, False
    line[again] = request
    return size - 1, again + 1, used


@inner
def _held(tokens: int, block: int) -> int:
    """The number of blocks for ``tokens`` tokens."""
    return (tokens + block - 1) // block


@inner
def _iteration_ms(weights: Floats, decoding: int, context: int, tokens: int, attended: float) -> float:
    """The time of an iteration in ms, by its decoding sequences, their cached tokens, prompt tokens, and pairs of
    these.
    """
    step, read, token, several, sequence, cached, prefill, pair, _, experts, active, launch = weights
    time_ms = step + max(read, token * (decoding + tokens)) + experts * (1 - (1 - active) ** (decoding + tokens))
    if decoding > 1:
        time_ms += several * (1 - 1 / decoding)
    time_ms += sequence * decoding + cached * context
    time_ms += prefill + pair * attended if tokens > 0 else 0.0
    return max(time_ms, launch) if tokens > 0 and decoding + tokens > RECORDED else time_ms
