"""``provision import splitwise``, ``muxserve``, ``wva``, ``inferno``: what others know of language models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.commands.common import add_force, write_out
from provision.commands.import_tokens import add_server, server_of
from provision.instances.files.files import check_writable, refused
from provision.instances.importers.doubts import poor_fit
from provision.models.base.errors import InputError
from provision.models.performance.tokens.data import EngineLimits

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from provision.models.fitting.token_iterations import TimedIteration


def add_tables(formats: Any) -> None:
    """Declare the formats and their arguments."""
    splitwise = _add(formats, "splitwise", _splitwise, "Splitwise's timed iterations, as performance data", "CSV")
    splitwise.add_argument("--hardware", required=True, metavar="NAME", help="whose rows (h100-80gb, ...)")
    splitwise.add_argument("--rows-of", metavar="NAME", help="model whose rows (default: --model)")
    muxserve = _add(formats, "muxserve", _muxserve, "MuxServe's profile (your copy), as performance data", "JSON")
    muxserve.add_argument("--rows-of", metavar="NAME", help="model whose rows (default: --model)")
    muxserve.add_argument("--sm-percent", type=int, default=100, metavar="P", help="whose rows (default: 100)")
    for parser in (splitwise, muxserve):
        parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N",
                            help="whose rows (default: 1); --gpu and --profile name the group that they are of")
    wva = _add(formats, "wva", _wva, "a VariantAutoscaling with a modelProfile, as performance data", "YAML")
    wva.add_argument("--accelerator", metavar="NAME", help="of its accelerators (default: the only one)")
    for parser in (splitwise, muxserve, wva):
        add_server(parser)
    inferno = _add(formats, "inferno", _inferno, "a folder of inferno's, as an instance", "DIR")
    inferno.add_argument("--gpus", default="", metavar="NAME=TYPE,...", help="GPU types of its types of accelerators")
    inferno.add_argument("--percentile", type=float, default=99.0, metavar="P",
                         help="of the requests that keep its targets, which are for means there (default: 99)")
    inferno.add_argument("--out", required=True, metavar="F", help="file to write (.json, else YAML)")
    add_force(inferno)


def _add(formats: Any, name: str, run: Callable[[Namespace], int], text: str, path: str) -> Any:
    parser = formats.add_parser(name, help=text, description=text)
    parser.add_argument("path", metavar=path)
    parser.set_defaults(run=run)
    return parser


def _splitwise(options: Namespace) -> int:
    from provision.instances.importers.tokens.splitwise import read_splitwise, timed_iterations

    asked = (options.rows_of or options.model, options.hardware, options.tensor_parallel)
    return _fitted(options, timed_iterations(read_splitwise(options.path), *asked),
                   f"fitted to Splitwise's rows of {asked[0]} on {asked[1]} x {asked[2]}")


def _muxserve(options: Namespace) -> int:
    from provision.instances.importers.tokens.muxserve import read_muxserve

    asked = (options.rows_of or options.model, options.tensor_parallel, options.sm_percent)
    return _fitted(options, read_muxserve(options.path, *asked),
                   f"fitted to MuxServe's profile of {asked[0]} on {asked[1]} GPUs, {asked[2]} % of the SMs")


def _fitted(options: Namespace, rows: Sequence[TimedIteration], source: str) -> int:
    from provision.instances.importers.tokens.performance import performance_of
    from provision.models.fitting.token_iterations import fit_iterations

    check_writable(options.out, options.force)
    fit = fit_iterations(rows)
    found = performance_of(fit.costs, server_of(options), source)
    print(f"{len(rows)} timed iterations, median errors on these same rows: prompts {fit.prompt_error:.1%}, decodes "
          f"{fit.decode_error:.1%}")
    for line in poor_fit(max(fit.prompt_error, fit.decode_error), "the fit"):
        print(f"warning: {line}", file=sys.stderr)
    return write_out(options, found, after="; the times of a server's front end are not in such tables, and 0 here")


def _wva(options: Namespace) -> int:
    from provision.instances.importers.tokens.performance import performance_of
    from provision.instances.importers.tokens.wva import read_wva

    check_writable(options.out, options.force)
    found = [one for one in read_wva(options.path) if options.accelerator in (None, one.accelerator)]
    if len(found) != 1:
        raise InputError(f"{options.path}: {len(found)} accelerators {options.accelerator or 'in there'}; name one "
                         "with --accelerator")
    [one], server = found, server_of(options)
    with refused(f"{options.path}: maxBatchSize"):
        limits = EngineLimits(tokens_per_iteration=options.tokens_per_iteration, max_sequences=(one.most_sequences,))
    data = performance_of(one.costs, server._replace(limits=limits),
                          f"coefficients of {one.model} on {one.accelerators} x {one.accelerator}")
    return write_out(options, data)


def _inferno(options: Namespace) -> int:
    from provision.instances.importers.tokens.inferno import read_inferno
    from provision.instances.importers.tokens.inferno_instance import KNOWN, inferno_instance

    check_writable(options.out, options.force)
    if not 0 < options.percentile < 100:
        raise InputError(f"--percentile {options.percentile:g}: give one between 0 and 100")
    pairs = [one.partition("=") for one in options.gpus.split(",") if one]
    types = {**KNOWN, **{name: gpu for name, _, gpu in pairs}}
    found = inferno_instance(read_inferno(options.path), Path(options.path).resolve().name, options.percentile, types)
    for note in found.notes:
        print(note, file=sys.stderr)
    if found.servers:
        print(f"left out, as their models fit no GPU that is left: {', '.join(found.servers)}", file=sys.stderr)
    return write_out(options, found.instance, f"{len(found.instance.workloads)} workloads, ")
