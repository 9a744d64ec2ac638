"""The tables that the replay of continuous batching works on: requests, and the engine between two iterations."""

from typing import NamedTuple

import numpy as np

from provision.models.base.errors import InputError

NOBODY = -1


class Engine(NamedTuple):
    """Limits of an engine: tokens per iteration, sequences at a time, tokens per KV block, and KV blocks."""

    budget_tokens: int = 8192
    most_sequences: int = 1024
    block_tokens: int = 16
    kv_blocks: int = 2**40

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV memory holds."""
        return self.block_tokens * self.kv_blocks


class Clients(NamedTuple):
    """The limit of those who send: requests under way at a time."""

    most: int


REQUEST = np.dtype(
    [(name, np.float64) for name in ("planned_ms", "sent_ms", "first_ms", "end_ms")]
    + [(name, np.int64) for name in ("prompt", "output", "cached", "preemptions")]
    + [(name, np.int64) for name in ("tokens", "age", "ends", "older", "newer", "place", "heap", "line")]
)
"""A row of the table of requests, in the order in which clients send them.

Given: ``planned_ms``, when a client would send it; tokens of ``prompt`` and ``output``; ``cached``, the tokens of the
prompt where its KV cache and the first token come along, else 0 (and 0 once it gave its blocks back). Found:
``sent_ms``, when it did (later if the clients' concurrency is limited); ``first_ms`` and ``end_ms``, when the first and
last token reach it, infinite where it did not come to that; ``preemptions``.

The rest belongs to the engine: ``tokens`` given when its prompt was last computed; ``age``, tokens computed less the
number of the iteration, constant while it decodes; ``ends``, iterations done when it ends, 0 while it does not decode;
``older`` and ``newer``, its neighbours in the order of admission; ``place`` in the heap of those who decode. Columns
``heap`` and ``line`` (a ring of those who wait) hold requests by place, not by request.
"""

CORE = np.dtype(
    [(name, np.int64) for name in ("step", "free", "decoding", "context", "newest", "partial", "chunked")]
    + [(name, np.int64) for name in ("head", "waiting", "sent", "in_flight")]
    + [(name, np.float64) for name in ("now_ms", "ready_ms", "intake_ms", "place_ms", "before_ms")]
)
"""The engine: iterations done; free blocks; sequences that decode, and tokens in their KV caches; the sequence admitted
last; the one in the middle of its prompt, and its tokens computed so far; start and length of the line; requests sent,
and of those not yet answered. Times: now; when the request sent last reaches the engine; when the front end is free;
when a place at the clients became free; when the request answered last was sent, whose sender sends the next one."""


def request_table(planned_ms: np.ndarray, prompt: np.ndarray, output: np.ndarray, engine: Engine,
                  cached: bool = False) -> np.ndarray:
    """A table of requests for the replay.

    Parameters
    ----------
    planned_ms : array (requests,)
        When clients would send, ascending, in ms.
    prompt, output : array (requests,)
        Tokens, at least one each.
    engine : Engine
        Its KV memory has to hold each request.
    cached : bool
        Whether requests come with the KV cache of their prompt and with their first token, and need more than that.

    Raises
    ------
    InputError
        If a request has no tokens or never fits, or the engine can hold more sequences than an iteration has tokens.
    """
    if engine.most_sequences > engine.budget_tokens:
        raise InputError(
            f"engine: {engine.most_sequences} sequences need more than the {engine.budget_tokens} tokens of an "
            "iteration; lower the number of sequences or raise the number of tokens"
        )
    table = np.zeros(len(planned_ms), REQUEST)
    table["planned_ms"], table["prompt"], table["output"] = planned_ms, prompt, output
    if cached:
        table["cached"], table["tokens"] = prompt, 1
    _check(table, engine)
    for name in ("sent_ms", "first_ms", "end_ms"):
        table[name] = np.inf
    table["older"] = table["newer"] = NOBODY
    return table


def _check(table: np.ndarray, engine: Engine) -> None:
    if not len(table):
        return
    if min(table["prompt"].min(), table["output"].min()) < 1:
        raise InputError("tokens: every request needs at least one token of prompt and one of output")
    if (table["output"] <= table["tokens"]).any():
        raise InputError("tokens: every request that comes with its first token needs at least two")
    longest = int((table["prompt"] + table["output"]).max())
    if longest > engine.kv_tokens:
        raise InputError(
            f"tokens: a request of {longest} tokens does not fit the KV memory of {engine.kv_tokens} tokens; take a "
            "larger slice, more GPUs or shorter requests"
        )
    if (np.diff(table["planned_ms"]) < 0).any():
        raise InputError("requests: times must ascend")
