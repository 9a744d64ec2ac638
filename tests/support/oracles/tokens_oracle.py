"""Continuous batching iteration by iteration, with lists and dictionaries: slow, and plain enough to be read as a rule.

While it runs it checks the invariants that can only be seen from inside:

1. Blocks in use are never more than there are, and everybody holds exactly the blocks that its computed tokens need.
2. No iteration computes more tokens than its budget, nor serves more sequences than allowed.
3. No sequence decodes before its whole prompt is computed.
4. The engine never stands still while somebody waits or runs (a step without any token needs a preemption).
5. Nobody passes another in the line: those admitted first are the oldest that wait, preempted ones first.
"""

import math
from dataclasses import dataclass, field

from plain import plain

from provision.models.performance.tokens import step

decode_ms, delivery_ms, idle_ms, intake_ms, launched_ms, prefill_ms = map(plain, (
    step.decode_ms, step.delivery_ms, step.idle_ms, step.intake_ms, step.launched_ms, step.prefill_ms))


@dataclass
class Sequence:
    """A request inside the engine."""

    at: int
    prompt: int
    output: int
    reused: int = 0
    shared: int = 0
    given: int = 0
    computed: int = 0
    to_compute: int = 0
    decoding: bool = False
    found: dict = field(default_factory=lambda: {"sent": math.inf, "first": math.inf, "end": math.inf, "preempted": 0})


def serve(planned_ms, prompt, output, engine, costs, clients, cached=False, reused=None, shared=None):
    """When each request was sent, had its first and last token, and how often it was preempted; all served.

    Those that come ``cached``, with the KV cache of their prompt and its first token, decode when they are admitted;
    who was preempted computes its prompt anew. Of each prompt the first ``reused`` tokens are in the prefix cache, and
    ``shared`` of their blocks are not counted.
    """
    none = [0] * len(prompt)
    every = [Sequence(at, *tokens, given=int(cached))
             for at, tokens in enumerate(zip(prompt, output, reused or none, shared or none, strict=True))]
    pending, line, running = [], [], []
    now = chosen = intake = place = before = 0.0
    sent = under_way = 0

    def send():
        nonlocal sent, under_way, intake
        if pending or sent == len(every) or under_way >= clients.most:
            return
        one = every[sent]
        one.found["sent"] = max(planned_ms[sent], place)
        intake = max(intake, one.found["sent"]) + intake_ms(costs, one.prompt)
        pending.append((intake + idle_ms(costs, one.found["sent"] - before), one))
        sent, under_way = sent + 1, under_way + 1

    def blocks(tokens):
        return -(-tokens // engine.block_tokens)

    def used():
        return sum(blocks(one.computed) - one.shared for one in running)

    def crosses(one):
        return one.decoding and one.computed % engine.block_tokens == 0

    def preempt():
        one = running.pop()
        one.computed, one.to_compute, one.decoding = 0, 0, False
        one.found["preempted"] += 1
        line.insert(0, one)

    send()
    while pending or line or running:
        while pending and pending[0][0] <= chosen:
            line.append(pending.pop()[1])
            send()
        if not line and not running:
            now = chosen = max(now, pending[0][0])
            continue
        calm = True
        while used() + sum(crosses(one) for one in running) > engine.kv_blocks:
            preempt()
            calm = False
        decoders = [one for one in running if one.decoding]
        reserved = sum(crosses(one) for one in decoders)
        budget = engine.budget_tokens - (0 if engine.prompts_alone else len(decoders))
        chunks, attended = 0, 0.0
        while budget > 0:
            partial = running[-1] if running and running[-1].computed < running[-1].to_compute else None
            if partial is None and (not calm or not line or len(running) == engine.most_sequences):
                break
            one = partial or line[0]
            if cached and not one.found["preempted"]:
                new = one.prompt % engine.block_tokens == 0
                if blocks(one.prompt) + new > engine.kv_blocks - used() - reserved:
                    break
                one.computed, one.decoding = one.prompt, True
                reserved += new
                running.append(line.pop(0))
                decoders.append(one)
                budget -= 1
                continue
            one.to_compute = one.prompt + one.given
            done = one.computed if partial else one.reused
            chunk = min(one.to_compute - done, budget)
            held = blocks(done) if partial else one.shared
            if blocks(done + chunk) - held > engine.kv_blocks - used() - reserved:
                if partial is not None:
                    preempt()
                    calm = False
                break
            if partial is None:
                running.append(line.pop(0))
            one.computed = done + chunk
            budget -= chunk
            chunks += chunk
            attended += chunk * (done + (chunk + 1) / 2)
        if engine.prompts_alone and chunks:
            decoders = []
        assert len(decoders) + chunks <= engine.budget_tokens and len(running) <= engine.most_sequences  # 2
        assert decoders or chunks or not calm  # 4
        context = sum(one.computed for one in decoders)
        taken = decode_ms(costs, len(decoders), context)
        taken += prefill_ms(costs, len(decoders), chunks, attended)
        chosen = now  # what the next iteration admits is known when this one begins
        now += launched_ms(costs, taken, len(decoders), chunks)
        if not engine.scheduled_ahead:
            chosen = now
        delivered = now + delivery_ms(costs, len(decoders))
        answered = []
        for one in list(running):
            if one.decoding and one not in decoders:
                continue
            if one.decoding:
                assert one.computed >= one.prompt  # 3
                one.computed += 1
            elif one.computed < one.to_compute:
                continue
            one.decoding = True
            one.given += 1
            one.found["first"] = min(one.found["first"], delivered)
            if one.given == one.output:
                one.found["end"] = delivered
                answered.append(one.found["sent"])
                running.remove(one)
                if under_way == clients.most:
                    place = delivered
                under_way -= 1
        before = max(answered, default=before)
        assert used() <= engine.kv_blocks  # 1
        fresh = [one.at for one in line if not one.found["preempted"]]
        assert fresh == sorted(fresh)  # 5
        send()
    return [one.found for one in every]
