"""Performance data of kind ``tokens``: for every language model and slice, the coefficients of the time of an
iteration.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from provision.models.base.fields import Name, NonNegative, PositiveCount, Record, absent, empty
from provision.models.hardware.gpu import WHOLE, gpu_type, no_profile
from provision.models.performance.bands import Origin, TokenBands
from provision.models.performance.operating_points import Member, OperatingPoints, PerformanceData, Prediction
from provision.models.performance.tokens.records import RECORDED_TOKENS, Engine
from provision.models.performance.tokens.requests import MOST_TOKENS, RequestTokens

PARTS = {
    "decode": ("step_ms", "weights_ms", "several_ms", "sequence_ms", "context_ms", "experts_ms"),
    "prefill": ("token_ms", "prefill_ms", "attended_ms", "launch_ms"),
    "overhead": ("request_ms", "read_ms", "idle_ms", "delivery_ms", "delivery_sequence_ms", "hiccup_ms")}
"""The coefficients of a slice by part: what iterations take that only decode, what prompts add, and the front end."""


class TokenSlice(Record):
    """A language model on a slice: its KV memory, and the coefficients of an iteration in ms.

    ``kv_tokens`` is the number of tokens whose KV cache fits into the memory beside the weights. The coefficients have
    the names and meanings of ``TokenCosts`` (`step`); a coefficient that is left out is 0. ``active_part`` is the
    fraction of all experts that a token takes. ``bands`` tells how far off the predicted times of whole requests may
    be, ``origins`` the sources of coefficients.
    """

    kv_tokens: PositiveCount
    step_ms: NonNegative = 0.0
    weights_ms: NonNegative = 0.0
    token_ms: NonNegative = 0.0
    several_ms: NonNegative = 0.0
    sequence_ms: NonNegative = 0.0
    context_ms: NonNegative = 0.0
    prefill_ms: NonNegative = 0.0
    attended_ms: NonNegative = 0.0
    request_ms: NonNegative = 0.0
    read_ms: NonNegative = 0.0
    idle_ms: NonNegative = 0.0
    delivery_ms: NonNegative = 0.0
    delivery_sequence_ms: NonNegative = 0.0
    hiccup_ms: NonNegative = 0.0
    experts_ms: NonNegative = Field(default=0.0, exclude_if=empty)
    launch_ms: NonNegative = Field(default=0.0, exclude_if=empty)
    active_part: NonNegative = Field(default=0.0, le=1, exclude_if=empty)
    bands: TokenBands | None = Field(default=None, exclude_if=empty)
    origins: dict[Name, Origin] = Field(default_factory=dict, exclude_if=empty)

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.iteration_ms(1, 1) <= 0:
            raise ValueError("an iteration takes no time; give step_ms or weights_ms")
        return self

    def iteration_ms(self, sequences: float, context: float, prompt: float = 0, attended: float = 0) -> float:
        """The time of an iteration, in ms. ``sequences`` is the number of decoding sequences, ``context`` the number of
        tokens in their KV caches, ``prompt`` the number of prompt tokens computed, and ``attended`` the number of pairs
        of a prompt token and a token to which it attends.
        """
        time_ms = self.step_ms + max(self.weights_ms, self.token_ms * (sequences + prompt))
        time_ms += self.several_ms * (1 - 1 / max(sequences, 1)) + self.sequence_ms * sequences
        time_ms += self.context_ms * context + self.experts_ms * (1 - (1 - self.active_part) ** (sequences + prompt))
        time_ms += self.prefill_ms + self.attended_ms * attended if prompt else 0.0
        launched = prompt > 0 and sequences + prompt > RECORDED_TOKENS
        return max(time_ms, self.launch_ms) if launched else time_ms

    def intake_ms(self, prompt: float) -> float:
        """The time that the front end spends on a request with ``prompt`` tokens, in ms."""
        return self.request_ms + self.read_ms * prompt

    def alone_ms(self, tokens: RequestTokens, engine: Engine) -> float:
        """The time of a request of mean length that is served alone, from its arrival to its last token, in ms."""
        prompt, output = tokens.input.counts.mean, tokens.output.counts.mean
        fresh, pairs = tokens.computed_parts(engine.block_tokens)
        computed, attended = fresh * prompt, pairs * prompt**2 / 2
        chunks = 0 if tokens.cached else math.ceil(computed / engine.budget_tokens)
        prefill_ms = chunks * self.iteration_ms(0, 0, computed / chunks, attended / chunks) if chunks else 0.0
        decode_ms = max(output - 1, 0) * self.iteration_ms(1, prompt + output / 2)
        around_ms = self.intake_ms(prompt) + self.delivery_sequence_ms
        around_ms += 0.0 if tokens.cached else self.idle_ms + self.delivery_ms
        return around_ms + prefill_ms + decode_ms + tokens.transfer_ms_per_token * prompt

    def saturated_rps(self, tokens: RequestTokens, engine: Engine) -> float:
        """Estimate the requests/s of an engine that always has work, from mean values. The estimate assumes that the KV
        memory or the batch is full. It is too high, since it leaves out that sequences wait while prompts of others are
        computed.
        """
        prompt, output = tokens.input.counts.mean, tokens.output.counts.mean
        context = prompt + tokens.output.counts.mean_square / output / 2
        steps = max(output - 1, 1.0) if tokens.cached else output
        fresh = 0.0 if tokens.cached else 1 / steps
        part, pairs = tokens.computed_parts(engine.block_tokens)
        shared = prompt * (1 - part) if tokens.shared_prefix and tokens.shared_prefix.tokens else 0.0
        sequences = min(engine.most_sequences, engine.kv_tokens / (context - shared),
                        engine.budget_tokens / (1 - fresh + fresh * part * prompt))
        decoding, begun = sequences * (1 - fresh), sequences * fresh
        time_ms = self.iteration_ms(decoding, decoding * context, begun * part * prompt,
                                    begun * pairs * tokens.input.counts.mean_square / 2)
        time_ms -= self.prefill_ms * max(1 - begun, 0) if begun else 0.0
        intake_ms = self.intake_ms(prompt)
        return min(1000 * sequences / steps / time_ms, 1000 / intake_ms if intake_ms else math.inf)


class TokenModel(Record):
    """One language model: its data on every slice that can hold it, by profile.

    ``context_tokens`` is the most tokens of a request, prompt and answer together. ``precision`` is that of the weights
    and ``kv_precision`` that of the KV cache, where these are known; exports tell servers so.
    """

    context_tokens: PositiveCount = MOST_TOKENS
    precision: Name | None = Field(default=None, exclude_if=absent)
    kv_precision: Name | None = Field(default=None, exclude_if=absent)
    slices: dict[Name, TokenSlice] = Field(min_length=1)


class EngineLimits(Record):
    """The engine's settings, vLLM's ``max_num_batched_tokens``, ``block_size`` and ``max_num_seqs``.

    A plan chooses one of ``max_sequences`` for each replica and states it as the replica's batch size. With
    ``prompts_alone`` an iteration with prompts computes nothing else, as in SGLang. With ``scheduled_ahead`` the
    requests of an iteration are chosen when the one before it begins, as vLLM does by default from version 0.14 on.
    """

    tokens_per_iteration: PositiveCount = 8192
    block_tokens: PositiveCount = 16
    max_sequences: tuple[PositiveCount, ...] = Field(default=(1024,), min_length=1)
    prompts_alone: bool = Field(default=False, exclude_if=empty)
    scheduled_ahead: bool = Field(default=False, exclude_if=empty)

    @model_validator(mode="after")
    def _enough_tokens(self) -> Self:
        if max(self.max_sequences) > self.tokens_per_iteration:
            raise ValueError(f"max_sequences {max(self.max_sequences)} need more than the {self.tokens_per_iteration} "
                             "tokens of an iteration; lower them or raise tokens_per_iteration")
        return self


class TokenModels(PerformanceData):
    """Language models served by continuous batching, each alone on its slice.

    The rate that a replica carries depends on the tokens and the SLO of its workload: see `operating.highest_rate_rps`.
    """

    of_tokens = True
    parts = tuple(PARTS)
    stated_errors: ClassVar[Any] = {"bands": True, "models": {"__all__": {"slices": {"__all__": {"bands"}}}}}
    kind: Literal["tokens"]
    engine: EngineLimits = EngineLimits()
    models: dict[Name, TokenModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _known_profiles(self) -> Self:
        known = {WHOLE, *gpu_type(self.gpu).profiles}
        for model, one in self.models.items():
            for profile in one.slices:
                if profile not in known:
                    raise ValueError(f"model {model}: {no_profile(self.gpu, profile)}")
        return self

    def slice_of(self, model: str, profile: str) -> TokenSlice | None:
        """The data of a model on a slice of this profile; None if there is none."""
        return self.models[model].slices.get(profile)

    def engine_of(self, model: str, profile: str, sequences: int) -> Engine:
        """The limits of an engine with ``sequences`` at a time on a slice; the data must describe the slice."""
        blocks = self.models[model].slices[profile].kv_tokens // self.engine.block_tokens
        limits = self.engine
        return Engine(limits.tokens_per_iteration, sequences, limits.block_tokens, blocks, limits.prompts_alone,
                      limits.scheduled_ahead)

    def longest(self, model: str, profile: str) -> int:
        """The most tokens, of prompt and answer together, of a request that fits on the slice; 0 if there is no data.
        """
        if self.slice_of(model, profile) is None:
            return 0
        return min(self.models[model].context_tokens, self.engine_of(model, profile, 1).kv_tokens)

    def up_to_batch(self, most: int) -> dict[str, Any] | None:
        """See ``PerformanceData.up_to_batch``."""
        content = self.model_dump(mode="json")
        content["engine"]["max_sequences"] = [one for one in self.engine.max_sequences if one <= most]
        return content

    def scaled(self, factors: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
        """See ``PerformanceData.scaled``."""
        content = self.model_dump(mode="json", exclude=self.stated_errors, exclude_none=True)
        for model, parts in factors.items():
            for piece in content["models"][model]["slices"].values():
                for part, factor in parts.items():
                    piece |= {name: piece[name] * factor for name in PARTS[part] if name in piece}
        return content

    def operating_points(self, model: str, profile: str) -> OperatingPoints:
        """One operating point for each of ``max_sequences``.

        Its latency is the time of an iteration with a single sequence. Its throughput is a placeholder, since the rate
        that a replica carries depends on the workload.
        """
        one = self.slice_of(model, profile)
        batches = np.array(self.engine.max_sequences if one else (), int)
        latency_ms = np.full(len(batches), one.iteration_ms(1, 1) if one else 0.0)
        return OperatingPoints(batches, np.ones_like(batches), latency_ms, np.zeros(len(batches)))

    def _alone(self, profile: str, member: Member) -> Prediction | None:
        """The Prediction for a replica alone: the latency of a request of mean length, and the throughput of an engine
        that always has work. None if requests do not fit.
        """
        one, tokens = self.slice_of(member.model, profile), member.tokens
        known = member.batch in self.engine.max_sequences and member.processes == 1
        if one is None or tokens is None or not known or tokens.most_held > self.longest(member.model, profile):
            return None
        engine = self.engine_of(member.model, profile, member.batch)
        return Prediction(one.alone_ms(tokens, engine), one.saturated_rps(tokens, engine), None)
