"""The arrays that the replay of continuous batching uses: the requests, and the state of the engine between two
iterations.
"""

from typing import NamedTuple

import numpy as np

from provision.models.base.errors import InputError

NOBODY = -1
RECORDED_TOKENS = 512
"""Servers record iterations of up to so many tokens as CUDA graphs, and need not launch their kernels one by one."""


class Engine(NamedTuple):
    """The limits of an engine: tokens per iteration, sequences at a time, tokens per KV block, and number of KV blocks.

    With ``prompts_alone`` an iteration that computes prompts gives no token to decoding sequences, as in SGLang. With
    ``scheduled_ahead`` the requests of an iteration are chosen when the iteration before it begins, as in vLLM from
    version 0.14 on (its asynchronous scheduling); a request that arrives later waits for one iteration more.
    """

    budget_tokens: int = 8192
    most_sequences: int = 1024
    block_tokens: int = 16
    kv_blocks: int = 2**40
    prompts_alone: bool = False
    scheduled_ahead: bool = False

    @property
    def kv_tokens(self) -> int:
        """The number of tokens whose KV cache fits into the memory."""
        return self.block_tokens * self.kv_blocks


class Clients(NamedTuple):
    """The limit of the clients: the most requests under way at a time."""

    most: int


REQUEST = np.dtype(
    [(name, np.float64) for name in ("planned_ms", "sent_ms", "first_ms", "end_ms")]
    + [(name, np.int64) for name in ("prompt", "output", "cached", "reused", "shared_blocks", "preemptions")]
    + [(name, np.int64) for name in ("tokens", "age", "ends", "older", "newer", "place", "heap", "line")]
)
"""A row of the table of requests, in the order in which clients send them.

Inputs: ``planned_ms``, when the client would send the request; ``prompt`` and ``output``, its numbers of tokens;
``cached``, the number of prompt tokens if the request comes with its KV cache and first token, otherwise 0 (and 0 after
it was preempted); ``reused``, the number of its first tokens that are in the prefix cache whenever it is admitted
(whole blocks, less than the prompt); ``shared_blocks``, how many of these blocks are in memory once for all requests.

Results: ``sent_ms``, when the client sent the request (later than planned if concurrency is limited); ``first_ms`` and
``end_ms``, when the first and the last token reached the client, infinite if they did not; ``preemptions``, how often
the request was preempted. State of the engine: ``tokens``, the number of answer tokens when the request's prompt was
last computed; ``age``, the request's computed tokens minus the number of iterations done, which is constant while the
request decodes; ``ends``, the number of iterations that will be done when the request ends, 0 while it does not decode;
``older`` and ``newer``, its neighbours in the order of admission; ``place``, its position in the heap of decoding
requests. The columns ``heap`` and ``line`` (a ring buffer of waiting requests) are indexed by position, not by request.
"""

CORE = np.dtype(
    [(name, np.int64) for name in ("step", "free", "decoding", "context", "newest", "partial", "chunked")]
    + [(name, np.int64) for name in ("head", "waiting", "sent", "in_flight", "answered")]
    + [(name, np.float64) for name in ("now_ms", "chosen_ms", "ready_ms", "intake_ms", "place_ms", "before_ms")]
)
"""The state of the engine, in the order of the fields.

Numbers: iterations done (``step``); free blocks; decoding sequences, and tokens in their KV caches (``context``); the
sequence admitted last (``newest``); the sequence in the middle of its prompt (``partial``), and its tokens computed so
far (``chunked``); start (``head``) and length (``waiting``) of the waiting line; requests sent, and how many of them
are not answered yet (``in_flight``); iterations done when a request was last answered (``answered``).

Times in ms: now; when the requests of the next iteration are chosen (``chosen_ms``); when the request sent last reaches
the engine (``ready_ms``); when the front end is free (``intake_ms``); when the clients' limit last permitted a further
request (``place_ms``); when the request answered last was sent, whose client sends the next request (``before_ms``; of
several answered together, the one sent last).
"""


def request_table(planned_ms: np.ndarray, prompt: np.ndarray, output: np.ndarray, engine: Engine, cached: bool = False,
                  reused: np.ndarray | int = 0, shared_blocks: np.ndarray | int = 0) -> np.ndarray:
    """A table of requests for the replay.

    Parameters
    ----------
    planned_ms : array (requests,)
        The times in ms at which clients would send the requests, ascending.
    prompt, output : array (requests,)
        The numbers of tokens, at least 1.
    engine : Engine
        The limits of the engine; every request has to fit into its KV memory.
    cached : bool
        Whether requests come with the KV cache of their prompt and their first token; their answers then need at least
        2 tokens.
    reused, shared_blocks : array (requests,) or int
        See ``REQUEST``. The KV blocks of the engine do not include the shared blocks.

    Raises
    ------
    InputError
        If a request has no tokens or does not fit, or the engine admits more sequences than an iteration has tokens.
    """
    if engine.most_sequences > engine.budget_tokens:
        raise InputError(
            f"engine: {engine.most_sequences} sequences need more than the {engine.budget_tokens} tokens of an "
            "iteration; lower the number of sequences or raise the number of tokens"
        )
    table = np.zeros(len(planned_ms), REQUEST)
    table["planned_ms"], table["prompt"], table["output"] = planned_ms, prompt, output
    table["reused"], table["shared_blocks"] = reused, shared_blocks
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
    longest = int((table["prompt"] + table["output"] - engine.block_tokens * table["shared_blocks"]).max())
    if longest > engine.kv_tokens:
        raise InputError(
            f"tokens: a request of {longest} tokens does not fit the KV memory of {engine.kv_tokens} tokens; take a "
            "larger slice, more GPUs or shorter requests"
        )
    if (np.diff(table["planned_ms"]) < 0).any():
        raise InputError("requests: times must ascend")
