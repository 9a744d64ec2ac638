"""Imports benchmarks of language model servers, to which performance data is fitted."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial

from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.tokens.server import add_server, server_of
from provision.models.base.errors import InputError
from provision.models.base.options import listed
from provision.models.hardware.gpu import SIZES, UNIT, split

MOST_KV_TOKENS = 10**9


def _add_arguments(parser: ArgumentParser) -> None:
    add_server(parser, several=True)
    parser.add_argument("--tensor-parallel", metavar="N,...",
                        help="GPUs of each file's server: a file and one of --kv-tokens for each; the data is then "
                             "for nodes of these GPUs")
    parser.add_argument("--concurrency", type=int, metavar="N",
                        help="clients that sent when they were answered, for files that do not tell how requests came")


def _read(tool: str, options: Namespace) -> Imported:
    from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

    kv_tokens = listed("kv-tokens", options.kv_tokens, int, 1, MOST_KV_TOKENS)
    if options.tensor_parallel:
        return _degrees(tool, options, kv_tokens)
    if len(kv_tokens) > 1:
        raise InputError(f"--kv-tokens {options.kv_tokens}: several are for --tensor-parallel; give one")
    server = server_of(_with(options, kv_tokens=kv_tokens[0]))
    found, misfit = fitted_performance(read_benchmarks(tool, options.path, options.concurrency), server)
    return Imported(found, (misfit,))


def _degrees(tool: str, options: Namespace, kv_tokens: list[int]) -> Imported:
    """Fit one model on groups of GPUs of a node; each size of group has one file and one number of KV tokens."""
    from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

    degrees = listed("tensor-parallel", options.tensor_parallel, int, 1, max(SIZES))
    if not len(degrees) == len(options.path) == len(kv_tokens):
        raise InputError(
            f"--tensor-parallel {options.tensor_parallel}: {len(degrees)} degrees, {len(options.path)} files and "
            f"{len(kv_tokens)} --kv-tokens; give one file and one number for each degree"
        )
    node = options.gpu if split(options.gpu)[0] > 1 else f"{max(*degrees, min(SIZES))}x{options.gpu}"
    models, lines = [], []
    for degree, path, tokens in zip(degrees, options.path, kv_tokens, strict=True):
        server = server_of(_with(options, gpu=node, profile=f"{degree}{UNIT}", kv_tokens=tokens))
        found, misfit = fitted_performance(read_benchmarks(tool, [path], options.concurrency), server)
        models.append(found)
        lines.append(f"{degree} GPUs: {misfit}")
    slices = {name: one for found in models for name, one in found.models[options.model].slices.items()}
    whole = models[0].models[options.model].model_copy(update={"slices": slices})
    return Imported(models[0].model_copy(update={"models": {options.model: whole}}), tuple(lines))


def _with(options: Namespace, **changes: object) -> Namespace:
    """The options with some values changed."""
    return type(options)(**{**vars(options), **changes})


def _importer(tool: str, files: str) -> Importer:
    """The Importer of a tool's files; all files are of one model on one GPU type and slice, and are fitted together."""
    summary = f"benchmarks of a language model ({files}), as performance data fitted to them"
    return Importer(summary, "FILE", partial(_read, tool), _add_arguments, many=True)


GUIDELLM = _importer("guidellm", "GuideLLM's JSON or CSV")
VLLM = _importer("vllm", "what vllm bench serve saves")
AIPERF = _importer("aiperf", "AIPerf's profile_export.jsonl")
