"""Declares the importers' options for what files about language models do not tell about the server."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import NamedTuple

from provision.instances.files.files import refused
from provision.models.base.errors import InputError
from provision.models.base.options import listed
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.tokens.data import EngineLimits

MOST_SEQUENCES = 10**6
DEFAULTS = EngineLimits()


class Server(NamedTuple):
    """The measured server: GPU type, profile of the slice, name of the model, and settings of the engine.

    ``kv_tokens`` is the number of tokens whose KV cache fits the memory; vLLM logs it when it starts.
    """

    gpu: str
    profile: str
    model: str
    kv_tokens: int
    limits: EngineLimits


def add_server(parser: ArgumentParser, several: bool = False) -> None:
    """Declare the options of a server; with ``several``, several numbers of KV tokens can be given, for several
    servers.
    """
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="measured on")
    parser.add_argument("--profile", default=WHOLE, metavar="P", help=f"MIG profile (default: {WHOLE})")
    parser.add_argument("--model", required=True, metavar="NAME", help="what instances call the model")
    parser.add_argument("--kv-tokens", type=str if several else int, required=True, metavar="N",
                        help="tokens of KV cache, which vLLM logs when it starts; the fit begins there")
    parser.add_argument("--max-sequences", default=",".join(map(str, DEFAULTS.max_sequences)), metavar="N,...",
                        help="vLLM's max_num_seqs, of several the largest measured (default: %(default)s)")
    parser.add_argument("--tokens-per-iteration", type=int, default=DEFAULTS.tokens_per_iteration, metavar="N",
                        help="vLLM's max_num_batched_tokens (default: %(default)s)")


def server_of(options: Namespace) -> Server:
    """Return the server that the options describe.

    Raises
    ------
    InputError
        If an option is out of range.
    """
    gpu_type(options.gpu)
    with refused("import"):
        limits = EngineLimits(
            tokens_per_iteration=options.tokens_per_iteration,
            max_sequences=tuple(listed("max-sequences", options.max_sequences, int, 1, MOST_SEQUENCES)),
        )
    if options.kv_tokens < limits.block_tokens:
        raise InputError(f"--kv-tokens {options.kv_tokens}: give at least a block of {limits.block_tokens} tokens; "
                         "vLLM logs it when it starts (GPU KV cache size)")
    return Server(options.gpu, options.profile, options.model, options.kv_tokens, limits)
