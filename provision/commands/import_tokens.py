"""``provision import guidellm``, ``vllm``, ``aiperf``: benchmarks of a language model's server as performance data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provision.commands.common import add_force, listed, write_out
from provision.instances.files.files import check_writable, refused
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.tokens.data import EngineLimits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.instances.importers.tokens.performance import Server

TOOLS = {
    "guidellm": "benchmarks of a language model (GuideLLM's JSON or CSV), as performance data fitted to them",
    "vllm": "benchmarks of a language model (what vllm bench serve saves), as performance data fitted to them",
    "aiperf": "benchmarks of a language model (AIPerf's profile_export.jsonl), as performance data fitted to them",
}
MOST_SEQUENCES = 10**6
DEFAULTS = EngineLimits()


def add_formats(formats: Any) -> None:
    """Declare the formats and their arguments."""
    for tool, text in TOOLS.items():
        _add(formats.add_parser(tool, help=text, description=text), tool)


def _add(parser: ArgumentParser, tool: str) -> None:
    parser.add_argument("paths", metavar="FILE", nargs="+", help="all of one model on one GPU type and slice")
    add_server(parser)
    parser.add_argument("--concurrency", type=int, metavar="N",
                        help="clients that sent when they were answered, for files that do not tell how requests came")
    parser.set_defaults(run=_run, tool=tool)


def add_server(parser: ArgumentParser) -> None:
    """Declare what a file does not tell of the server, and where to write."""
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="measured on")
    parser.add_argument("--profile", default=WHOLE, metavar="P", help=f"MIG profile (default: {WHOLE})")
    parser.add_argument("--model", required=True, metavar="NAME", help="what instances call the model")
    parser.add_argument("--kv-tokens", type=int, required=True, metavar="N",
                        help="tokens of KV cache, which vLLM logs when it starts; the fit begins there")
    parser.add_argument("--max-sequences", default=",".join(map(str, DEFAULTS.max_sequences)), metavar="N,...",
                        help="vLLM's max_num_seqs, of several the largest measured (default: %(default)s)")
    parser.add_argument("--tokens-per-iteration", type=int, default=DEFAULTS.tokens_per_iteration, metavar="N",
                        help="vLLM's max_num_batched_tokens (default: %(default)s)")
    parser.add_argument("--out", required=True, metavar="F", help="file to write (.json, else YAML)")
    add_force(parser)


def server_of(options: Namespace) -> Server:
    """The server that the options describe.

    Raises
    ------
    InputError
        When one is out of range.
    """
    from provision.instances.importers.tokens.performance import Server

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


def _run(options: Namespace) -> int:
    from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

    check_writable(options.out, options.force)
    server = server_of(options)
    runs = read_benchmarks(options.tool, options.paths, options.concurrency)
    found, misfit = fitted_performance(runs, server)
    print(misfit)
    return write_out(options, found)
