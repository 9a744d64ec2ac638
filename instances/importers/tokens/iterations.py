"""Imports timed iterations of language models, to which performance data is fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.instances.importers.doubts import poor_fit
from provision.instances.importers.importer import Imported, Importer
from provision.instances.importers.tokens.muxserve import read_muxserve
from provision.instances.importers.tokens.server import add_server, server_of
from provision.instances.importers.tokens.splitwise import read_splitwise, timed_iterations

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from provision.models.fitting.token_iterations import TimedIteration


def _add_arguments(parser: ArgumentParser) -> None:
    """Declare the options that choose rows of a file, and those of the server."""
    parser.add_argument("--rows-of", metavar="NAME", help="model whose rows (default: --model)")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N",
                        help="whose rows (default: 1); --gpu and --profile name the group that they are of")
    add_server(parser)


def _add_splitwise(parser: ArgumentParser) -> None:
    parser.add_argument("--hardware", required=True, metavar="NAME", help="whose rows (h100-80gb, ...)")
    _add_arguments(parser)


def _add_muxserve(parser: ArgumentParser) -> None:
    parser.add_argument("--sm-percent", type=int, default=100, metavar="P", help="whose rows (default: 100)")
    _add_arguments(parser)


def _splitwise(options: Namespace) -> Imported:
    asked = (options.rows_of or options.model, options.hardware, options.tensor_parallel)
    return _fitted(options, timed_iterations(read_splitwise(options.path), *asked),
                   f"fitted to Splitwise's rows of {asked[0]} on {asked[1]} x {asked[2]}")


def _muxserve(options: Namespace) -> Imported:
    asked = (options.rows_of or options.model, options.tensor_parallel, options.sm_percent)
    return _fitted(options, read_muxserve(options.path, *asked),
                   f"fitted to MuxServe's profile of {asked[0]} on {asked[1]} GPUs, {asked[2]} % of the SMs")


def _fitted(options: Namespace, rows: Sequence[TimedIteration], source: str) -> Imported:
    from provision.instances.importers.tokens.performance import performance_of
    from provision.models.fitting.token_iterations import fit_iterations

    fit = fit_iterations(rows)
    return Imported(performance_of(fit.costs, server_of(options), source), (
        f"{len(rows)} timed iterations, median errors on these same rows: prompts {fit.prompt_error:.1%}, decodes "
        f"{fit.decode_error:.1%}",
        "the times of a server's front end are not in such tables, and 0 here",
    ), tuple(f"warning: {line}" for line in poor_fit(max(fit.prompt_error, fit.decode_error), "the fit")))


SPLITWISE = Importer("Splitwise's timed iterations, as performance data", "CSV", _splitwise, _add_splitwise)
MUXSERVE = Importer("MuxServe's profile (your copy), as performance data", "JSON", _muxserve, _add_muxserve)
