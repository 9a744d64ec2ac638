"""Reads JSON files of language models' servers, and the options for what such files do not tell about a server.

The content of a file need not be a mapping. A wrong field is reported in one line.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from provision.instances.files.files import read_text, refused
from provision.instances.importers.importer import Source
from provision.models.base.arguments import local
from provision.models.base.errors import InputError
from provision.models.base.fields import PositiveCount
from provision.models.hardware.gpu import WHOLE, gpu_type
from provision.models.performance.tokens.data import EngineLimits


def read_json(path: str | Path) -> Any:
    """Read the content of a JSON file, of any type. Raises InputError if the file cannot be read or is not JSON."""
    return parsed_json(f"{path}", read_text(path))


def parsed_json(where: str, text: str) -> Any:
    """The content of a JSON text, of any type; ``where`` names its place in the InputError if it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: not well-formed JSON: {error.msg}; export it again") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be what was meant; export it again") from None


@contextmanager
def written_by(tool: str, where: str) -> Iterator[None]:
    """Turn the error of a missing or wrong field inside the block into an InputError that names the place and the tool.
    """
    try:
        with refused(where):
            yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{where}: field {error} is missing; export it again with {tool}") from None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: not as {tool} writes it: {error}; export it again") from None


DEFAULTS = EngineLimits()
Sequences = tuple[Annotated[int, Field(ge=1, le=10**6)], ...]
"""Numbers of requests that an engine has at work at once."""


class Server(NamedTuple):
    """The measured server: GPU type, profile of the slice, name of the model, and settings of the engine.

    ``kv_tokens`` is the number of tokens whose KV cache fits the memory; vLLM logs it when it starts.
    """

    gpu: str
    profile: str
    model: str
    kv_tokens: int
    limits: EngineLimits


class OfServer(Source):
    """Base of formats whose files come from a server."""

    gpu: str = local(..., "TYPE", "measured on")
    profile: str = local(WHOLE, "P", "MIG profile")
    model: str = local(..., "NAME", "what instances call the model")
    kv_tokens: tuple[PositiveCount, ...] = local(
        ..., "N", "tokens of KV cache, which vLLM logs when it starts; the fit begins there")
    max_sequences: Sequences = local(DEFAULTS.max_sequences, "N,...",
                                     "vLLM's max_num_seqs, of several the largest measured")
    tokens_per_iteration: PositiveCount = local(
        DEFAULTS.tokens_per_iteration, "N", "vLLM's max_num_batched_tokens")

    def measured(self, gpu: str = "", profile: str = "", kv_tokens: int | None = None) -> Server:
        """The server, perhaps on another group of GPUs with other memory for its KV cache. Raises InputError if the GPU
        type is unknown, the KV cache too small, several are stated for one server, or settings contradict each other.
        """
        gpu_type(gpu or self.gpu)
        with refused("import"):
            limits = EngineLimits(tokens_per_iteration=self.tokens_per_iteration, max_sequences=self.max_sequences)
        if kv_tokens is None and len(self.kv_tokens) > 1:
            raise InputError(f"--kv-tokens {','.join(map(str, self.kv_tokens))}: several are for --tensor-parallel; "
                             "give one")
        tokens = kv_tokens or self.kv_tokens[0]
        if tokens < limits.block_tokens:
            raise InputError(f"--kv-tokens {tokens}: give at least a block of {limits.block_tokens} tokens; "
                             "vLLM logs it when it starts (GPU KV cache size)")
        return Server(gpu or self.gpu, profile or self.profile, self.model, tokens, limits)
