"""Describes the times that servers add to the times of operators, and the errors of predictions that are composed in
this way, compared with measured servers. The numbers were fitted to measured servers (`benchmarks/silicon_error.py
--fit`) and ship by the name of the software.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml

from provision.models.base.errors import InputError
from provision.models.base.fields import Fraction, NonNegative, Positive, Record
from provision.models.base.register import one_of
from provision.models.performance.bands import TokenBands
from provision.models.performance.operators.compose import MEMORY_PART
from provision.models.performance.operators.decoder import Decoder, shipped_name
from provision.models.performance.operators.laws import GpuOperators
from provision.models.performance.tokens.step import TokenCosts

TIMES = ("step", "weights", "several", "sequence", "context", "experts")
"""The names of the coefficients of decoding. They are multiplied by ``ServerSoftware.decode``."""
PROMPTS = ("token", "attended", "prefill")
"""The names of the coefficients of prompts. They are multiplied by ``ServerSoftware.prefill``."""
FRONT_END = ("request", "read", "idle", "delivery", "delivery_sequence", "hiccup")
"""The names of the coefficients of the front end."""


class ServerSoftware(Record):
    """The effect of a server's software on the times of iterations and requests.

    ``decode`` and ``prefill`` are factors on the times of operators. The following times in ms are added: ``step_ms``
    for every iteration, ``sequence_ms`` for each of its sequences, ``sync_ms`` for each layer and each doubling of the
    number of GPUs, ``mixture_ms`` for each layer of a mixture of experts, and ``prompt_ms`` for each layer if the
    iteration has a prompt. An iteration with a prompt takes at least ``launch_ms`` for each layer, whose kernels are
    launched one by one. The other times are those of the front end, with the names of ``TokenCosts``. ``prompts_alone``
    and ``scheduled_ahead`` are the scheduling: whether an iteration with prompts computes nothing else, and whether its
    requests are chosen when the iteration before it begins. ``memory_part`` is that of `compose.Served`.
    """

    decode: Positive = 1.0
    prefill: Positive = 1.0
    step_ms: NonNegative = 0.0
    sequence_ms: NonNegative = 0.0
    launch_ms: NonNegative = 0.0
    prompt_ms: NonNegative = 0.0
    sync_ms: NonNegative = 0.0
    mixture_ms: NonNegative = 0.0
    request_ms: NonNegative = 0.0
    read_ms: NonNegative = 0.0
    idle_ms: NonNegative = 0.0
    delivery_ms: NonNegative = 0.0
    delivery_sequence_ms: NonNegative = 0.0
    hiccup_ms: NonNegative = 0.0
    prompts_alone: bool = False
    scheduled_ahead: bool = False
    memory_part: Fraction = MEMORY_PART
    bands: TokenBands

    def around(self, costs: TokenCosts, decoder: Decoder, gpus: int) -> TokenCosts:
        """The coefficients of a server, from the coefficients of its GPUs alone."""
        scaled = {name: self.decode * getattr(costs, name) for name in TIMES}
        scaled |= {name: self.prefill * getattr(costs, name) for name in PROMPTS}
        layers, mixture = decoder.layers, bool(decoder.experts)
        scaled["step"] += self.step_ms + layers * (self.sync_ms * math.log2(gpus) + self.mixture_ms * mixture)
        scaled["sequence"] += self.sequence_ms
        scaled["prefill"] += self.prompt_ms * layers
        front = {name: getattr(self, f"{name}_ms") for name in FRONT_END}
        return costs._replace(**scaled, **front, launch=self.launch_ms * layers)


@cache
def shipped_servers() -> Mapping[str, ServerSoftware]:
    """The shipped software, by name and by `software_key`."""
    given = _shipped("servers.yaml")
    return {name: ServerSoftware.model_validate(one) for name, one in given.items()}


@cache
def shipped_operators() -> Mapping[str, GpuOperators]:
    """The shipped laws of operators, by GPU type."""
    given = _shipped("operators.yaml")
    return {name: GpuOperators.model_validate(one) for name, one in given.items()}


def software_key(name: str, model: str, gpu: str) -> str:
    """The key of a software's corrections for a model on a GPU type with which the software was measured."""
    return f"{name} {model} {gpu}"


def server_software(name: str, model: str, gpu: str) -> ServerSoftware:
    """The software of this name, as measured with this model on this GPU type; if that was not measured, as measured
    with others. Raises InputError if nothing is known about the software.
    """
    known = shipped_servers()
    names = [one for one in known if " " not in one]
    if name not in names:
        raise InputError(f"--server {name}: nothing was fitted to it; {one_of(name, names)}")
    return known.get(software_key(name, shipped_name(model) or model, gpu), known[name])


def operator_gpu(name: str) -> str:
    """The GPU type with operator times that a name means: the type of this name, or the only type whose name begins
    with it (``h100``). Raises InputError if there are no operator times of such a type.
    """
    known = shipped_operators()
    meant = [one for one in known if one == name or one.startswith(f"{name}-")]
    if len(meant) != 1:
        raise InputError(f"--gpu {name}: there are no operator times of it; {one_of(name, known)}, or measure a server "
                         "on it and `provision import vllm`")
    return meant[0]


def _shipped(name: str) -> dict[str, dict[str, object]]:
    """The content of a shipped YAML file."""
    path = files("provision.models.performance.operators") / "data" / name
    return dict(yaml.load(path.read_text(), yaml.CSafeLoader))
