"""Continuous batching as vLLM does it by default, in one compiled loop from event to event.

Every iteration gives each decoding sequence one token. What is left of its token budget goes to prompts, first come
first served and in chunks; the iteration in which the last chunk of a prompt is computed also gives its first token.
Sequences take KV memory in blocks as they grow. When none is left, the sequence that was admitted last gives all its
blocks back and later computes its prompt and its tokens again; no prompt is admitted in such an iteration.
(Scheduler of vLLM's version 1, with its defaults, without reuse of prefixes.) A request that comes with the KV cache of
its prompt decodes from the iteration on in which it is admitted.

At most one admitted sequence is in the middle of its prompt, the one admitted last. All others decode, so iterations
without prefill differ only in the length of the contexts: a run of them up to the next arrival, completion or shortage
of memory is one step here.
"""

import math
from typing import Any

import numpy as np

from provision.models.base.arrays import Ints
from provision.models.base.compiled import compiled
from provision.models.performance.tokens.heap import push, take
from provision.models.performance.tokens.records import CORE, NOBODY, Clients, Engine
from provision.models.performance.tokens.step import TokenCosts, decode_ms, delivery_ms, idle_ms, intake_ms, prefill_ms

Core = Any
"""One record of the type CORE, whose fields kernels read and write as attributes."""


def replay(requests: np.ndarray, engine: Engine, costs: TokenCosts, clients: Clients, until_ms: float) -> None:
    """Serve a table of requests until a moment; fills in when their tokens came.

    What ends later than ``until_ms`` may or may not be filled in.
    """
    _replay(requests, np.zeros(1, CORE), engine, costs, clients, until_ms)


@compiled
def _replay(requests: np.ndarray, cores: np.ndarray, engine: Engine, costs: TokenCosts, clients: Clients,
            until_ms: float) -> None:
    """The same, with the record of the engine in an array of one, which begins as zeros."""
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
            core.now_ms = core.ready_ms
        else:
            _iterate(requests, core, crossing, engine, costs, clients)
            _send(requests, core, costs, clients)


@compiled
def _send(requests: np.ndarray, core: Core, costs: TokenCosts, clients: Clients) -> None:
    """Let a client send the next request, if it may; the front end takes requests in one after another."""
    request = core.sent
    if core.ready_ms < math.inf or core.in_flight >= clients.most or request == len(requests):
        return
    sent_ms = max(requests[request].planned_ms, core.place_ms)
    core.intake_ms = max(core.intake_ms, sent_ms) + intake_ms(costs, requests[request].prompt)
    core.ready_ms = core.intake_ms + idle_ms(costs, sent_ms - core.before_ms)
    requests[request].sent_ms = sent_ms
    core.sent += 1
    core.in_flight += 1


@compiled
def _receive(requests: np.ndarray, core: Core, costs: TokenCosts, clients: Clients) -> None:
    """Put those who have reached the engine at the end of its line."""
    while core.ready_ms <= core.now_ms:
        requests[(core.head + core.waiting) % len(requests)].line = core.sent - 1
        core.waiting += 1
        core.ready_ms = math.inf
        _send(requests, core, costs, clients)


@compiled
def _iterate(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, costs: TokenCosts, clients: Clients
) -> None:
    """One iteration, or a run of iterations that only decode."""
    calm = _make_room(requests, core, crossing, engine)
    prompt_tokens, attended, calm = _prefill(requests, core, crossing, engine, calm)
    steps = _run(requests, core, crossing, engine, costs) if prompt_tokens == 0 and calm else 1
    core.now_ms += _elapsed_ms(core, costs, steps) + prefill_ms(costs, core.decoding, prompt_tokens, attended)
    core.free -= _blocks_taken(core, crossing, engine, steps)
    core.context += core.decoding * steps
    core.step += steps
    delivered_ms = core.now_ms + delivery_ms(costs, core.decoding)
    _end_decodes(requests, core, crossing, engine, clients, delivered_ms)
    _begin_decodes(requests, core, crossing, engine, clients, delivered_ms)


@compiled
def _make_room(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine) -> bool:
    """Blocks for the tokens of all who decode: those admitted last give theirs back; True if nobody had to."""
    calm = True
    while crossing[core.step % engine.block_tokens] > core.free:
        _preempt(requests, core, crossing, engine)
        calm = False
    return calm


@compiled
def _preempt(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine) -> None:
    """The sequence admitted last gives its blocks back and waits at the head of the line."""
    request = core.newest
    if request == core.partial:
        core.free += _blocks(core.chunked, engine)
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


@compiled
def _prefill(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, calm: bool) -> tuple[int, float, bool]:
    """Spend the rest of the token budget on prompts, and on those who come with theirs computed.

    Returns tokens computed, pairs of a token and one that it attends to, and whether still nobody gave blocks back.
    """
    budget = engine.budget_tokens - core.decoding
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
        done = core.chunked if core.partial != NOBODY else 0
        left = requests[request].prompt + requests[request].tokens - done
        chunk = min(left, budget)
        taken = _blocks(done + chunk, engine) - _blocks(done, engine)
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


@compiled
def _take_over(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int) -> bool:
    """Admit the head of the line with its KV cache, which decodes at once; False where memory for it is short."""
    cached = requests[request].cached
    if _blocks(cached + 1, engine) > core.free - crossing[core.step % engine.block_tokens]:
        return False
    core.free -= _blocks(cached, engine)
    _admit(requests, core, request)
    _join(requests, core, crossing, engine, request, cached)
    return True


@compiled
def _admit(requests: np.ndarray, core: Core, request: int) -> None:
    """Take the head of the line in as the newest sequence."""
    core.head = (core.head + 1) % len(requests)
    core.waiting -= 1
    requests[request].older, requests[request].newer = core.newest, NOBODY
    if core.newest != NOBODY:
        requests[core.newest].newer = request
    core.newest = request


@compiled
def _run(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, costs: TokenCosts) -> int:
    """Iterations until somebody ends or arrives, or memory runs short; at least one."""
    steps = requests[requests[0].heap].ends - core.step
    if core.ready_ms < math.inf:
        steps = min(steps, _steps_for(core, costs, core.ready_ms - core.now_ms))
    if _blocks_taken(core, crossing, engine, steps) > core.free:
        steps = max(core.free // core.decoding * engine.block_tokens, 1)
        while _blocks_taken(core, crossing, engine, steps + 1) <= core.free:
            steps += 1
    return steps


@compiled
def _steps_for(core: Core, costs: TokenCosts, span_ms: float) -> int:
    """Fewest decode iterations that take at least as long as this."""
    one_ms = decode_ms(costs, core.decoding, core.context)
    slope_ms = costs.context * core.decoding
    steps = int(2 * span_ms / (one_ms + math.sqrt(one_ms * one_ms + 2 * slope_ms * span_ms)))
    while steps > 1 and _elapsed_ms(core, costs, steps - 1) >= span_ms:
        steps -= 1
    while _elapsed_ms(core, costs, steps) < span_ms:
        steps += 1
    return max(steps, 1)


@compiled
def _elapsed_ms(core: Core, costs: TokenCosts, steps: int) -> float:
    """Time of the next iterations without prefill; every one adds a token to every context."""
    growth = costs.context * core.decoding * steps * (steps - 1) / 2
    return steps * decode_ms(costs, core.decoding, core.context) + growth


@compiled
def _blocks_taken(core: Core, crossing: Ints, engine: Engine, steps: int) -> int:
    """Blocks that those who decode take in the next iterations."""
    rounds, rest = steps // engine.block_tokens, steps % engine.block_tokens
    taken = rounds * core.decoding
    for step in range(rest):
        taken += crossing[(core.step + step) % engine.block_tokens]
    return taken


@compiled
def _end_decodes(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, clients: Clients, delivered_ms: float
) -> None:
    """Those whose last token this was leave."""
    while core.decoding > 0 and requests[requests[0].heap].ends <= core.step:
        request = requests[0].heap
        _leave(requests, core, crossing, engine, request)
        _answer(requests, core, clients, request, delivered_ms)


@compiled
def _begin_decodes(
    requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, clients: Clients, delivered_ms: float
) -> None:
    """Those whose prompt is computed, the newest, have their first token and decode from now on."""
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
            core.free += _blocks(computed, engine)
            _answer(requests, core, clients, request, delivered_ms)
        else:
            _join(requests, core, crossing, engine, request, computed)
        request = older


@compiled
def _taken_over(requests: np.ndarray, core: Core, request: int) -> bool:
    """Whether a sequence that decodes came with its KV cache in this iteration."""
    cached = requests[request].cached
    return cached > 0 and requests[request].age + core.step == cached + 1


@compiled
def _join(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int, computed: int) -> None:
    """A sequence with so many computed tokens begins to decode."""
    requests[request].age = computed - core.step
    requests[request].ends = core.step + requests[request].output - requests[request].tokens
    crossing[-requests[request].age % engine.block_tokens] += 1
    push(requests, core.decoding, request)
    core.decoding += 1
    core.context += computed


@compiled
def _leave(requests: np.ndarray, core: Core, crossing: Ints, engine: Engine, request: int) -> None:
    """A sequence stops to decode and gives its blocks back."""
    computed = requests[request].age + core.step
    core.free += _blocks(computed, engine)
    core.context -= computed
    crossing[-requests[request].age % engine.block_tokens] -= 1
    take(requests, core.decoding, request)
    core.decoding -= 1
    requests[request].ends = 0


@compiled
def _answer(requests: np.ndarray, core: Core, clients: Clients, request: int, delivered_ms: float) -> None:
    """The client has its last token, and may send another request if it had to wait for this one."""
    _unlink(requests, core, request)
    requests[request].end_ms = delivered_ms
    core.before_ms = requests[request].sent_ms
    if core.in_flight == clients.most:
        core.place_ms = delivered_ms
    core.in_flight -= 1


@compiled
def _unlink(requests: np.ndarray, core: Core, request: int) -> None:
    """Take a sequence out of the order of admission."""
    older, newer = requests[request].older, requests[request].newer
    if newer == NOBODY:
        core.newest = older
    else:
        requests[newer].older = older
    if older != NOBODY:
        requests[older].newer = newer


@compiled
def _blocks(tokens: int, engine: Engine) -> int:
    return (tokens + engine.block_tokens - 1) // engine.block_tokens
