"""Replays continuous batching as vLLM does it by default, in one compiled loop from event to event. Every iteration
computes one token of each decoding sequence. The rest of the iteration's token budget is spent on prompts, first come
first served and in chunks; the iteration that computes the last chunk of a prompt also gives the first token of the
answer. Sequences take KV memory in blocks as they grow. If no block is left, the sequence that was admitted last is
preempted: it gives all its blocks back and later computes its prompt and tokens again. An iteration that preempts a
sequence admits no prompt. (This is the scheduler of vLLM's version 1 with its defaults.) A request that comes with the
KV cache of its prompt decodes from the iteration in which it is admitted. A request whose prompt begins like earlier
prompts (prefix caching) computes only the rest of its prompt; blocks that are in memory once for many requests are not
part of the engine's blocks in this model. With ``prompts_alone`` an iteration computes either prompts or one token of
each decoding sequence, and prompts go first (SGLang's default). With ``scheduled_ahead`` an iteration admits only
requests that have arrived when the iteration before it begins (vLLM's default from version 0.14 on). One idea makes the
replay fast: at most one admitted sequence, the last, is in the middle of its prompt. All others decode; therefore
iterations without prefill differ only in the lengths of the contexts. A run of such iterations up to the next arrival,
completion or shortage of memory is computed in one step, in closed form.
"""

import math
from typing import Any

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled, inner
from provision.models.performance.tokens.heap import push, take
from provision.models.performance.tokens.records import CORE, NOBODY, Clients, Engine
from provision.models.performance.tokens.step import (
    TokenCosts,
    decode_ms,
    delivery_ms,
    idle_ms,
    intake_ms,
    launched_ms,
    prefill_ms,
)

Core = Any
"""A record of the type CORE, whose fields kernels read and write as attributes."""


def replay(requests: np.ndarray, engine: Engine, costs: TokenCosts, clients: Clients, until_ms: float) -> None:
    """Serve a table of requests until ``until_ms``, and write the times at which tokens reach the clients into the
    table.

    Requests that end after ``until_ms`` may or may not be written.
    """
    _replay(requests, np.zeros(1, CORE), engine, costs, clients, until_ms)


@compiled
def _replay(requests: np.ndarray, cores: np.ndarray, engine: Engine, costs: TokenCosts, clients: Clients,
            until_ms: float) -> None:
    """The kernel of ``replay``; ``cores`` is an array of one engine record, all zeros at the start."""
    crossing = np.zeros(engine.block_tokens, np.int64)
    core = cores[0]
    core.free = engine.kv_blocks
    core.newest = core.partial = NOBODY
    core.ready_ms = math.inf
    _send(requests, core, costs, clients)
    while core.now_ms < until_ms:
        _receive(requests, core, costs, clients)
        if core.newest == NOBODY and core.waiting == 0:
            if core.ready_ms == math.inf:
                return
            core.now_ms = core.chosen_ms = max(core.now_ms, core.ready_ms)
        else:
            _iterate(requests, core, crossing, engine, costs, clients)
            _send(requests, core, costs, clients)


@inner
def _send(requests: np.ndarray, core: Core, costs: TokenCosts, clients: Clients) -> None:
    """Send the next request if the clients' limit permits it; the front end accepts requests one after another."""
    request = core.sent
    if core.ready_ms < math.inf or core.in_flight >= clients.most or request == len(requests):
        return
    sent_ms = max(requests[request].planned_ms, core.place_ms)
    core.intake_ms = max(core.intake_ms, sent_ms) + intake_ms(costs, requests[request].prompt)
    core.ready_ms = core.intake_ms + idle_ms(costs, sent_ms - core.before_ms)
    requests[request].sent_ms = sent_ms
    core.sent += 1
    core.in_flight += 1


@inner
def _receive(requests: np.ndarray, core: Core, costs: TokenCosts, clients: Clients) -> None:
    """Append the requests that had reached the engine when the next iteration was chosen to its waiting line."""
    while core.ready_ms <= core.chosen_ms:
        requests[(core.head + core.waiting) % len(requests)].line = core.sent - 1
        core.waiting += 1
        core.ready_ms = math.inf
        _send(requests, core, costs, clients)


@inner
def _iterate(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, costs: TokenCosts, clients: Clients
) -> None:
    """Compute one iteration, or a run of iterations that only decode."""
    calm = _make_room(requests, core, crossing, engine)
    prompt_tokens, attended, calm = _prefill(requests, core, crossing, engine, calm)
    steps = _run(requests, core, crossing, engine, costs) if prompt_tokens == 0 and calm else 1
    beside = core.decoding
    if prompt_tokens > 0 and engine.prompts_alone:
        steps = beside = 0
    time_ms = _elapsed_ms(core, costs, steps) if steps > 0 else decode_ms(costs, np.int64(0), np.int64(0))
    time_ms = launched_ms(costs, time_ms + prefill_ms(costs, beside, prompt_tokens, attended), beside, prompt_tokens)
    before_ms = _elapsed_ms(core, costs, steps - 1) if steps > 1 else 0.0
    core.chosen_ms = core.now_ms + (before_ms if engine.scheduled_ahead else time_ms)
    core.now_ms += time_ms
    core.free -= _blocks_taken(core, crossing, engine, steps)
    core.context += core.decoding * steps
    core.step += steps
    delivered_ms = core.now_ms + delivery_ms(costs, beside)
    _end_decodes(requests, core, crossing, engine, clients, delivered_ms)
    _begin_decodes(requests, core, crossing, engine, clients, delivered_ms)


@inner
def _make_room(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine) -> bool:
    """Free enough blocks for the next token of every decoding sequence, by preempting the sequences admitted last.

    Returns whether no sequence had to be preempted.
    """
    calm = True
    while crossing[core.step % engine.block_tokens] > core.free:
        _preempt(requests, core, crossing, engine)
        calm = False
    return calm


@inner
def _preempt(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine) -> None:
    """Preempt the sequence admitted last: it gives its blocks back and waits at the head of the line."""
    request = core.newest
    if request == core.partial:
        core.free += _own_blocks(requests, request, core.chunked, engine)
        core.partial = NOBODY
    else:
        requests[request].tokens = requests[request].output - (requests[request].ends - core.step)
        requests[request].cached = 0
        _leave(requests, core, crossing, engine, request)
    _unlink(requests, core, request)
    requests[request].preemptions += 1
    core.head = (core.head - 1) % len(requests)
    requests[core.head].line = request
    core.waiting += 1


@inner
def _prefill(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, calm: bool) -> tuple[int, float, bool]:
    """Spend the rest of the token budget on prompts, and admit requests that come with their KV cache.

    ``calm`` tells that the iteration has preempted no sequence so far. Returns the number of prompt tokens computed,
    the number of pairs of such a token and a token to which it attends, and ``calm`` afterwards.
    """
    budget = engine.budget_tokens - (0 if engine.prompts_alone else core.decoding)
    room = engine.most_sequences - core.decoding
    tokens, attended = 0, 0.0
    while budget > 0:
        if core.partial == NOBODY and (not calm or core.waiting == 0 or room == 0):
            break
        request = core.partial if core.partial != NOBODY else requests[core.head].line
        if requests[request].cached > 0:
            if not _take_over(requests, core, crossing, engine, request):
                break
            room -= 1
            budget -= 1
            continue
        done = core.chunked if core.partial != NOBODY else requests[request].reused
        left = requests[request].prompt + requests[request].tokens - done
        chunk = min(left, budget)
        taken = _own_blocks(requests, request, done + chunk, engine)
        if core.partial != NOBODY:
            taken -= _own_blocks(requests, request, done, engine)
        if taken > core.free - crossing[core.step % engine.block_tokens]:
            if core.partial != NOBODY:
                _preempt(requests, core, crossing, engine)
                calm = False
            break
        if core.partial == NOBODY:
            _admit(requests, core, request)
        room -= 1
        budget -= chunk
        tokens += chunk
        attended += chunk * (done + (chunk + 1) / 2)
        core.free -= taken
        core.partial = request if chunk < left else NOBODY
        core.chunked = done + chunk
    return tokens, attended, calm


@inner
def _take_over(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int) -> bool:
    """Admit the request at the head of the line with its KV cache, so that it decodes at once; returns False if memory
    is short.
    """
    cached = requests[request].cached
    if _blocks(cached + 1, engine) > core.free - crossing[core.step % engine.block_tokens]:
        return False
    core.free -= _blocks(cached, engine)
    _admit(requests, core, request)
    _join(requests, core, crossing, engine, request, cached)
    return True


@inner
def _admit(requests: np.ndarray, core: Core, request: int) -> None:
    """Admit the request at the head of the line as the newest sequence."""
    core.head = (core.head + 1) % len(requests)
    core.waiting -= 1
    requests[request].older, requests[request].newer = core.newest, NOBODY
    if core.newest != NOBODY:
        requests[core.newest].newer = request
    core.newest = request


@inner
def _run(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, costs: TokenCosts) -> int:
    """The number of iterations until a sequence ends, a request can be admitted or memory runs short; at least 1."""
    steps = requests[requests[0].heap].ends - core.step
    if core.ready_ms < math.inf:
        span_ms = core.ready_ms - core.now_ms
        until = _steps_for(core, costs, span_ms) if span_ms > 0 else 0
        steps = min(steps, max(until + engine.scheduled_ahead, 1))
    if _blocks_taken(core, crossing, engine, steps) > core.free:
        steps = max(core.free // core.decoding * engine.block_tokens, 1)
        while _blocks_taken(core, crossing, engine, steps + 1) <= core.free:
            steps += 1
    return steps


@inner
def _steps_for(core: Core, costs: TokenCosts, span_ms: float) -> int:
    """The fewest iterations without prefill that together take at least ``span_ms``."""
    one_ms = decode_ms(costs, core.decoding, core.context)
    slope_ms = costs.context * core.decoding
    steps = int(2 * span_ms / (one_ms + math.sqrt(one_ms * one_ms + 2 * slope_ms * span_ms)))
    while steps > 1 and _elapsed_ms(core, costs, steps - 1) >= span_ms:
        steps -= 1
    while _elapsed_ms(core, costs, steps) < span_ms:
        steps += 1
    return max(steps, 1)


@inner
def _elapsed_ms(core: Core, costs: TokenCosts, steps: int) -> float:
    """The time of the next ``steps`` iterations without prefill, in ms; each iteration adds a token to every context.
    """
    growth = costs.context * core.decoding * steps * (steps - 1) / 2
    return steps * decode_ms(costs, core.decoding, core.context) + growth


@inner
def _blocks_taken(core: Core, crossing: Ints, engine: Engine, steps: int) -> int:
    """The number of blocks that the decoding sequences take in the next ``steps`` iterations."""
    rounds, rest = steps // engine.block_tokens, steps % engine.block_tokens
    taken = rounds * core.decoding
    for step in range(rest):
        taken += crossing[(core.step + step) % engine.block_tokens]
    return taken


@inner
def _end_decodes(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, clients: Clients, delivered_ms: float
) -> None:
    """End the sequences whose last token this iteration has computed."""
    while core.decoding > 0 and requests[requests[0].heap].ends <= core.step:
        request = requests[0].heap
        _leave(requests, core, crossing, engine, request)
        _answer(requests, core, clients, request, delivered_ms)


@inner
def _begin_decodes(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, clients: Clients, delivered_ms: float
) -> None:
    """Give the newest sequences, whose prompts are now computed, their first token; from now on they decode."""
    request = core.newest
    if request != NOBODY and request == core.partial:
        request = requests[request].older
    while request != NOBODY and (requests[request].ends == 0 or _taken_over(requests, core, request)):
        older = requests[request].older
        if requests[request].ends > 0:
            request = older
            continue
        computed = requests[request].prompt + requests[request].tokens
        requests[request].tokens += 1
        requests[request].first_ms = min(requests[request].first_ms, delivered_ms)
        if requests[request].tokens == requests[request].output:
            core.free += _own_blocks(requests, request, computed, engine)
            _answer(requests, core, clients, request, delivered_ms)
        else:
            _join(requests, core, crossing, engine, request, computed)
        request = older


@inner
def _taken_over(requests: np.ndarray, core: Core, request: int) -> bool:
    """Whether a decoding sequence was admitted in this iteration with its KV cache."""
    cached = requests[request].cached
    return cached > 0 and requests[request].age + core.step <= cached + 1


@inner
def _join(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int, computed: int) -> None:
    """Let a sequence with ``computed`` tokens begin to decode."""
    requests[request].age = computed - core.step
    requests[request].ends = core.step + requests[request].output - requests[request].tokens
    crossing[-requests[request].age % engine.block_tokens] += 1
    push(requests, core.decoding, request)
    core.decoding += 1
    core.context += computed


@inner
def _leave(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int) -> None:
    """Let a sequence stop decoding and give its blocks back."""
    computed = requests[request].age + core.step
    core.free += _own_blocks(requests, request, computed, engine)
    core.context -= computed
    crossing[-requests[request].age % engine.block_tokens] -= 1
    take(requests, core.decoding, request)
    core.decoding -= 1
    requests[request].ends = 0


@inner
def _answer(requests: np.ndarray, core: Core, clients: Clients, request: int, delivered_ms: float) -> None:
    """Record that the client has the last token of a request; the client may now send a request that had to wait."""
    _unlink(requests, core, request)
    requests[request].end_ms = delivered_ms
    together = core.answered == core.step
    core.before_ms = max(core.before_ms, requests[request].sent_ms) if together else requests[request].sent_ms
    core.answered = core.step
    if core.in_flight == clients.most:
        core.place_ms = delivered_ms
    core.in_flight -= 1


@inner
def _unlink(requests: np.ndarray, core: Core, request: int) -> None:
    """Remove a sequence from the order of admission."""
    older, newer = requests[request].older, requests[request].newer
    if newer == NOBODY:
        core.newest = older
    else:
        requests[newer].older = older
    if older != NOBODY:
        requests[older].newer = newer


@inner
def _own_blocks(requests: np.ndarray, request: int, tokens: int, engine: Engine) -> int:
    """The number of blocks that a request does not share, if ``tokens`` of its tokens are in memory."""
    return _blocks(tokens, engine) - requests[request].shared_blocks


@inner
def _blocks(tokens: int, engine: Engine) -> int:
    return (tokens + engine.block_tokens - 1) // engine.block_tokens
