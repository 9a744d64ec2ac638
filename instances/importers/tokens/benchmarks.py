"""The importers of benchmarks of a language model's server, which become performance data fitted to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.tokens.server import add_server, server_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def _add_arguments(parser: ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument("--concurrency", type=int, metavar="N",
                        help="clients that sent when they were answered, for files that do not tell how requests came")


def _read(tool: str, options: Namespace) -> Imported:
    from provision.instances.importers.tokens.performance import fitted_performance, read_benchmarks

    server = server_of(options)
    found, misfit = fitted_performance(read_benchmarks(tool, options.path, options.concurrency), server)
    return Imported(found, (misfit,))


def _importer(tool: str, files: str) -> Importer:
    """All files of one model on one GPU type and slice are fitted together."""
    summary = f"benchmarks of a language model ({files}), as performance data fitted to them"
    return Importer(summary, "FILE", partial(_read, tool), _add_arguments, many=True)


GUIDELLM = _importer("guidellm", "GuideLLM's JSON or CSV")
VLLM = _importer("vllm", "what vllm bench serve saves")
AIPERF = _importer("aiperf", "AIPerf's profile_export.jsonl")
