"""The dimensions of a decoder, as its public configuration states them; the time of an iteration depends on them."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Self

import yaml
from pydantic import model_validator

from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, PositiveCount, Record
from provision.models.base.register import one_of

UNKNOWN_PARTS = ("kv_lora_rank", "ssm_cfg", "mamba_d_state", "linear_num_key_heads", "first_k_dense_replace")
"""Fields of configurations that tell of layers which this module does not describe."""

UNTOLD = {"meta", "instruct", "chat", "hf", "it", "base", "dynamic", "fp8", "fp16", "bf16", "fp4", "nvfp4", "int4",
          "awq", "gptq", "w8a8", "w4a16", "quantized"}
VERSION = re.compile(r"v[0-9.]+|[0-9]{4}")
"""Matches versions and months in names; like the words of UNTOLD, these do not change dimensions."""


class Decoder(Record):
    """A decoder of ``layers`` equal layers: attention with grouped heads, then an MLP or experts.

    ``experts`` is 0 for a dense model. In a mixture of experts each token takes ``active_experts`` experts, each
    ``mlp`` wide, and a shared MLP of width ``shared_mlp`` (0 if there is none). Of all layers, ``windowed_layers``
    attend only to the last ``window`` tokens.
    """

    layers: PositiveCount
    hidden: PositiveCount
    mlp: PositiveCount
    heads: PositiveCount
    kv_heads: PositiveCount
    head_dim: PositiveCount
    vocabulary: PositiveCount
    experts: Count = 0
    active_experts: Count = 0
    shared_mlp: Count = 0
    window: Count = 0
    windowed_layers: Count = 0
    tied: Flag = False
    """Whether the embedding and the last matrix are the same matrix."""
    context_tokens: PositiveCount = 131_072

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.active_experts > self.experts or bool(self.experts) != bool(self.active_experts):
            raise ValueError(f"{self.active_experts} of {self.experts} experts a token; give both, or none")
        if self.windowed_layers > self.layers or (self.windowed_layers and not self.window):
            raise ValueError(f"{self.windowed_layers} of {self.layers} layers with a window of {self.window} tokens; "
                             "give a window, and no more such layers than there are")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are no multiple of {self.kv_heads} KV heads; correct them")
        return self

    @property
    def attention_weights(self) -> int:
        """The number of weights of a layer's attention."""
        return self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def mlp_weights(self) -> int:
        """The number of weights of a layer's MLP, or of all its experts."""
        return 3 * self.hidden * (self.mlp * max(self.experts, 1) + self.shared_mlp)

    @property
    def embeddings(self) -> int:
        """The number of weights of the embedding and of the last matrix together."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def weights(self) -> int:
        """The number of all weights."""
        return self.layers * (self.attention_weights + self.mlp_weights) + self.embeddings


def decoder_of(config: Mapping[str, Any]) -> Decoder:
    """The dimensions in a public ``config.json`` (Hugging Face). Raises InputError if a field is missing, or the layers
    are of a sort that this module does not describe.
    """
    other = [name for name in UNKNOWN_PARTS if config.get(name)]
    if other:
        raise InputError(f"config.json: {other[0]} tells of layers that are not described here (latent attention, "
                         "state spaces, dense layers before experts); measure it with `provision import vllm`")
    heads, hidden, layers = (_whole(config, name) for name in ("num_attention_heads", "hidden_size",
                                                               "num_hidden_layers"))
    experts = int(_first(config, "num_local_experts", "num_experts") or 0)
    kinds = config.get("layer_types") or ()
    windowed = sum(kind == "sliding_attention" for kind in kinds)
    return Decoder(
        layers=layers, hidden=hidden, heads=heads, vocabulary=_whole(config, "vocab_size"),
        mlp=int((config.get("moe_intermediate_size") if experts else 0) or _whole(config, "intermediate_size")),
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        experts=experts,
        active_experts=int(_first(config, "num_experts_per_tok", "experts_per_token") or 0) if experts else 0,
        window=int(config.get("sliding_window") or 0) if windowed else 0, windowed_layers=windowed,
        tied=bool(config.get("tie_word_embeddings", False)),
        context_tokens=int(config.get("max_position_embeddings") or 131_072),
    )


@cache
def shipped_decoders() -> Mapping[str, Decoder]:
    """The decoders whose dimensions ship, by name."""
    path = files("provision.models.performance.operators") / "data" / "decoders.yaml"
    given = yaml.load(path.read_text(), yaml.CSafeLoader)
    return {name: Decoder.model_validate(one) for name, one in given.items()}


def shipped_decoder(name: str) -> Decoder:
    """The shipped dimensions of a model, which is named as in this package or as its publisher names it
    (``Qwen/Qwen3-8B``). Raises InputError if there are none; the message lists the known models.
    """
    known = shipped_decoders()
    meant = shipped_name(name)
    if meant is None:
        raise InputError(f"--model {name}: its dimensions do not ship; {one_of(name, known)}, or name its config.json "
                         "with --config")
    return known[meant]


def shipped_name(name: str) -> str | None:
    """The name under which a model's dimensions ship; None if they do not ship. Publishers add words that do not change
    dimensions: the organisation, ``Instruct``, a precision, a version.
    """
    known = shipped_decoders()
    return name if name in known else {_essence(one): one for one in known}.get(_essence(name))


def _essence(name: str) -> str:
    words = re.split(r"[-_ ]+", name.rsplit("/", 1)[-1].lower())
    return "".join(word for word in words if word not in UNTOLD and not VERSION.fullmatch(word))


def _first(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name)), None)


def _whole(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"config.json: {name} should be a number of at least 1 (got {value!r}); take the file of a "
                         "decoder as its publisher gives it")
    return value
