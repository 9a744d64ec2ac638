"""Imports (``provision import operators``) a language model that nobody measured, from its dimensions and operator
times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from provision.instances.files.files import refused
from provision.instances.importers.importer import Imported, Importer
from provision.models.base.errors import InputError
from provision.models.base.options import listed
from provision.models.hardware.gpu import SIZES
from provision.models.performance.tokens.data import EngineLimits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from provision.instances.importers.tokens.composed import Asked
    from provision.models.performance.operators.decoder import Decoder

SEQUENCES, TOKENS = "256", 8192
"""vLLM's defaults of an API server: the largest batch on GPUs up to 80 GB, and the tokens per iteration on data-centre
GPUs.
"""
MOST_SEQUENCES = 10**6


def add_composed(parser: ArgumentParser) -> None:
    """Declare the options that composing needs besides model and GPU."""
    parser.add_argument("--config", metavar="F", help="the model's config.json, where its dimensions do not ship")
    parser.add_argument("--tp", metavar="N,...", help="GPUs of a replica; of several plans choose (default: the fewest "
                                                      "that hold it)")
    parser.add_argument("--precision", default="bfloat16", metavar="P",
                        help="bfloat16 (default), fp8, fp8_block, nvfp4; of experts mxfp4, mxfp4_mxfp8, int4")
    parser.add_argument("--kv-precision", default="bfloat16", metavar="P", help="of the KV cache: bfloat16 or fp8")
    parser.add_argument("--server", default="vllm", metavar="S", help="the server's software (default: vllm)")
    parser.add_argument("--max-sequences", default=SEQUENCES, metavar="N,...",
                        help="vLLM's max_num_seqs; of several plans choose (default: %(default)s)")
    parser.add_argument("--tokens-per-iteration", type=int, default=TOKENS, metavar="N",
                        help="vLLM's max_num_batched_tokens (default: %(default)s)")
    parser.add_argument("--tables", metavar="DIR", help="your copy of aiconfigurator's tables, in place of what was "
                                                        "fitted to them: slower, nearer")


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="dimensions ship, or with --config any name")
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="GPU type with operator times: h100, a100, ...")
    add_composed(parser)


def asked_of(options: Namespace, gpu: str) -> Asked:
    """Return the decoder, server and precisions for which the options ask, on a GPU type.

    Raises
    ------
    InputError
        If a name is not known.
    """
    from provision.instances.importers.tokens.composed import Asked
    from provision.models.performance.operators.servers import operator_gpu, server_software

    kind = operator_gpu(gpu)
    asked = Asked(options.model, _decoder(options), kind, server_software(options.server, options.model, kind),
                  options.server,
                  options.precision, options.kv_precision)
    if not options.tables:
        return asked
    from provision.models.fitting.operators.laws import fit_operators
    from provision.models.fitting.operators.residuals import TableResiduals

    laws = fit_operators(options.tables, kind)
    return asked._replace(laws=laws, factors=TableResiduals(options.tables, kind, laws))


def limits_of(options: Namespace) -> EngineLimits:
    """Return the engine's settings in the options.

    Raises
    ------
    InputError
        If a setting is out of range.
    """
    sizes = listed("max-sequences", options.max_sequences, int, 1, MOST_SEQUENCES)
    with refused("--tokens-per-iteration"):
        return EngineLimits(tokens_per_iteration=options.tokens_per_iteration, max_sequences=tuple(sizes))


def degrees_of(options: Namespace, asked: Asked) -> list[int]:
    """Return the numbers of GPUs of a replica in the options; by default the least number that holds the decoder.

    Raises
    ------
    InputError
        If no group of GPUs has such a number.
    """
    from provision.instances.importers.tokens.composed import fewest_gpus

    degrees = listed("tp", options.tp, int, 1, max(SIZES)) if options.tp else [fewest_gpus(asked)]
    if not set(degrees) <= {1, *SIZES} or len(set(degrees)) < len(degrees):
        raise InputError(f"--tp {options.tp}: give 1, 2, 4 or 8, each once, with commas between")
    return degrees


def _decoder(options: Namespace) -> Decoder:
    from provision.models.performance.operators.decoder import decoder_of, shipped_decoder

    if not options.config:
        return shipped_decoder(options.model)
    try:
        content = json.loads(Path(options.config).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{options.config}: cannot be read as JSON ({error}); name the model's config.json") from error
    if not isinstance(content, dict):
        raise InputError(f"{options.config}: should be an object; name the model's config.json")
    with refused(options.config):
        return decoder_of(content)


def _read(options: Namespace) -> Imported:
    from provision.instances.importers.tokens.composed import composed_performance

    asked, limits = asked_of(options, options.gpu), limits_of(options)
    found = composed_performance(asked, degrees_of(options, asked), limits)
    return Imported(found.data, found.told, found.notes)


IMPORTER = Importer("a language model's dimensions and a GPU's operator times, as performance data", None, _read,
                    _add_arguments)
