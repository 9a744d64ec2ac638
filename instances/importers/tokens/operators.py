"""Imports (``provision import operators``) a language model that nobody measured, from its dimensions and operator
times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from provision.instances.files.files import refused
from provision.instances.importers.importer import Imported, Importer, Source
from provision.instances.importers.tokens.server import Sequences
from provision.models.base.arguments import local
from provision.models.base.errors import InputError
from provision.models.base.fields import PositiveCount, Record
from provision.models.base.objects import known
from provision.models.hardware.gpu import SIZES, WHOLE, gpu_type, no_profile
from provision.models.performance.operators.decoder import Decoder
from provision.models.performance.tokens.data import EngineLimits

if TYPE_CHECKING:
    from provision.instances.importers.tokens.composed import Asked

SEQUENCES, TOKENS = (256,), 8192
"""vLLM's defaults of an API server: the largest batch on GPUs up to 80 GB, and the tokens per iteration on data-centre
GPUs.
"""


class Composed(Record):
    """The options that composing needs besides model and GPU."""

    model: str | None = local(None, "NAME", "llama-3.1-8b, ...; see `provision import operators --help`")
    config: str | None = local(None, "F", "the model's config.json, where its dimensions do not ship")
    tp: tuple[Annotated[int, Field(ge=1, le=max(SIZES))], ...] = local(
        (), "N,...", "GPUs of a replica; of several plans choose (default: what holds it; import: fewest)")
    slices: tuple[str, ...] = local((), "P,...", "MIG profiles in place of --tp: each has its part of a GPU")
    precision: str = local("bfloat16", "P", "bfloat16 (default), fp8, fp8_block, nvfp4; of experts mxfp4, mxfp4_mxfp8, "
                                            "int4")
    kv_precision: str = local("bfloat16", "P", "of the KV cache: bfloat16 or fp8")
    server: str = local("vllm", "S", "the server's software")
    max_sequences: Sequences = local(SEQUENCES, "N,...", "vLLM's max_num_seqs; of several plans choose")
    tokens_per_iteration: PositiveCount = local(TOKENS, "N", "vLLM's max_num_batched_tokens")
    tables: str | None = local(None, "DIR", "your copy of aiconfigurator's tables, in place of what was fitted to "
                                            "them: slower, nearer")


class Operators(Composed, Source):
    """A language model that nobody measured."""

    model: str = local(..., "NAME", "dimensions ship, or with --config any name")
    gpu: str = local(..., "TYPE", "GPU type with operator times: h100, a100, ...")

    def read(self) -> Imported:
        """Compose the model."""
        from provision.instances.importers.tokens.composed import composed_performance

        asked = asked_of(self, self.gpu)
        degrees = degrees_of(self, asked)
        found = composed_performance(asked, degrees if self.tp else degrees[:1], limits_of(self), self.slices)
        return Imported(found.data, found.told, found.notes)


def asked_of(options: Composed, gpu: str) -> Asked:
    """Return the decoder, server and precisions for which the options ask, on a GPU type. Raises InputError if a name
    is not known.
    """
    from provision.instances.importers.tokens.composed import Asked
    from provision.models.performance.operators.servers import operator_gpu, server_software

    kind = operator_gpu(gpu)
    name = known(options.model)
    asked = Asked(name, _decoder(options), kind, server_software(options.server, name, kind), options.server,
                  options.precision, options.kv_precision)
    if not options.tables:
        return asked
    from provision.models.fitting.operators.laws import fit_operators
    from provision.models.fitting.operators.residuals import TableResiduals

    laws = fit_operators(options.tables, kind)
    return asked._replace(laws=laws, factors=TableResiduals(options.tables, kind, laws))


def limits_of(options: Composed) -> EngineLimits:
    """The engine's settings in the options. Raises InputError if they contradict each other."""
    with refused("--tokens-per-iteration"):
        return EngineLimits(tokens_per_iteration=options.tokens_per_iteration, max_sequences=options.max_sequences)


def degrees_of(options: Composed, asked: Asked) -> list[int]:
    """Return the numbers of GPUs of a replica in the options; by default all that hold the decoder, the least first.
    Raises InputError if no group of GPUs has such a number.
    """
    from provision.instances.importers.tokens.composed import holding

    if options.slices:
        wrong = [one for one in options.slices if one not in (WHOLE, *gpu_type(asked.gpu).profiles)]
        if wrong or options.tp:
            raise InputError(f"--slices {','.join(options.slices)}: " + (
                no_profile(asked.gpu, wrong[0]) if wrong else "a replica on a slice has one GPU; leave --tp out"))
        return [1]
    degrees = list(options.tp) or holding(asked)
    if not set(degrees) <= {1, *SIZES} or len(set(degrees)) < len(degrees):
        raise InputError(f"--tp {','.join(map(str, degrees))}: give 1, 2, 4 or 8, each once, with commas between")
    return degrees


def _decoder(options: Composed) -> Decoder:
    from provision.models.performance.operators.decoder import decoder_of, shipped_decoder

    if not options.config:
        return shipped_decoder(known(options.model))
    try:
        content = json.loads(Path(options.config).read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{options.config}: cannot be read as JSON ({error}); name the model's config.json") from error
    if not isinstance(content, dict):
        raise InputError(f"{options.config}: should be an object; name the model's config.json")
    with refused(options.config):
        return decoder_of(content)


IMPORTER = Importer("a language model's dimensions and a GPU's operator times, as performance data", Operators)
