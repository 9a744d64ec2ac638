"""Reads the specifications of inference-perf (github.com/kubernetes-sigs/inference-perf), which have a load and its
SLOs, and makes instances of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from provision.instances.files.files import load, refused
from provision.instances.importers.tokens.server import written_by
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Positive, Record
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import TokenCounts, TokenLoad
from provision.models.performance.tokens.requests import SharedPrefix
from provision.models.problem.instance import Instance

LEVELS = np.linspace(0, 1, 101)
TTFT_HEADER, TPOT_HEADER = "x-slo-ttft-ms", "x-slo-tpot-ms"


class Stage(Record):
    """A part of a load: requests at one rate for some time."""

    rate_rps: Positive
    duration_s: Positive


class InferencePerf(Record):
    """A specification. Token counts are None if requests come from a data set; SLOs are None if they are not stated.

    ``prefix`` is what the prompts of data of type ``shared_prefix`` have in common.
    """

    arrivals: Literal["constant", "poisson"]
    stages: tuple[Stage, ...]
    model: Name | None = None
    prompt: TokenCounts | None = None
    output: TokenCounts | None = None
    prefix: SharedPrefix | None = None
    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None

    def loads(self, prompt: TokenCounts | None = None, output: TokenCounts | None = None) -> list[TokenLoad]:
        """The load of every stage. Its requests have the numbers of tokens that ``counts`` returns for the same
        arguments.
        """
        prompt, output = self.counts(prompt, output)
        return [
            TokenLoad(
                arrivals=self.arrivals, rate_rps=stage.rate_rps, duration_s=stage.duration_s, prompt=prompt,
                output=output,
            )
            for stage in self.stages
        ]  # fmt: skip

    def counts(self, prompt: TokenCounts | None = None, output: TokenCounts | None = None
               ) -> tuple[TokenCounts, TokenCounts]:
        """Return the token counts of prompts and outputs; the arguments replace counts that the specification lacks.
        Raises InputError if counts are neither specified nor given.
        """
        prompt, output = self.prompt or prompt, self.output or output
        if prompt is None or output is None:
            raise InputError(
                "the specification takes its requests from a data set; give input and output token "
                "counts (--input-tokens, --output-tokens), or data of "
                "type random with input_distribution and output_distribution"
            )
        return prompt, output


def read_inference_perf(path: str | Path) -> InferencePerf:
    """Read a specification from its YAML or JSON file. Raises InputError if the file cannot be read, its load is
    neither constant nor Poisson, or a field is wrong.
    """
    spec = load(path)
    with written_by("inference-perf", f"{path}"):
        about, data, server = spec["load"], spec.get("data") or {}, spec.get("server") or {}
        arrivals = str(about.get("type", "constant")).lower()
        if arrivals not in ("constant", "poisson"):
            raise InputError(f"{path}: load.type {arrivals!r} has no rate; use constant or poisson with stages")
        shared = data.get("shared_prefix") if data.get("type") == "shared_prefix" else None
        headers = {name.lower(): value for name, value in ((spec.get("api") or {}).get("headers") or {}).items()}
        return InferencePerf(
            arrivals=arrivals,
            stages=tuple(
                Stage(rate_rps=float(stage["rate"]), duration_s=float(stage["duration"])) for stage in about["stages"]
            ),
            model=server.get("model_name"),
            prompt=_alike(shared, "system_prompt_len", "question_len") if shared
            else _counts(f"{path}: data.input_distribution", data.get("input_distribution")),
            output=_alike(shared, "output_len") if shared
            else _counts(f"{path}: data.output_distribution", data.get("output_distribution")),
            prefix=_prefix(shared),
            ttft_ms=_limit(headers, TTFT_HEADER),
            tpot_ms=_limit(headers, TPOT_HEADER),
        )


def _alike(shared: dict[str, Any], *lengths: str) -> TokenCounts:
    """Token counts of requests that all have the sum of these lengths."""
    tokens = sum(float(shared[name]) for name in lengths)
    return TokenCounts.uniform(tokens, tokens)


def _prefix(shared: dict[str, Any] | None) -> SharedPrefix | None:
    """The system prompts that prompts begin with, each for a group of prompts."""
    if not shared or not shared["system_prompt_len"]:
        return None
    groups = shared.get("num_unique_system_prompts", shared.get("num_groups", 1))
    return SharedPrefix(tokens=float(shared["system_prompt_len"]), distinct=int(groups))


def _limit(headers: dict[str, Any], name: str) -> float | None:
    return float(headers[name]) if name in headers else None


def _counts(where: str, distribution: dict[str, Any] | None) -> TokenCounts | None:
    """The quantiles of a normal distribution cut at its bounds; None if there is no distribution."""
    if not distribution:
        return None
    low, high, mean, std = (float(distribution[key]) for key in ("min", "max", "mean", "std_dev"))
    if not 1 <= low <= mean <= high or std < 0:
        raise InputError(f"{where}: min {low:g}, mean {mean:g}, max {high:g} must ascend from 1; correct them")
    if std == 0 or low == high:
        return TokenCounts.uniform(mean, mean)
    from scipy.stats import truncnorm  # it loads slowly, and most loads do without it

    cut = truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)
    return TokenCounts(levels=tuple(LEVELS.tolist()), tokens=tuple(cut.ppf(LEVELS).tolist()))


def minimum_instance(spec: InferencePerf, files: Sequence[TokenModels], model: str | None = None,
                     ttft_ms: float | None = None, tpot_ms: float | None = None, percentile: float | None = None,
                     prompt: TokenCounts | None = None, output: TokenCounts | None = None) -> Instance:
    """Make an instance whose optimum is the least number of GPUs for the busiest stage of a specification.

    Parameters
    ----------
    spec
        The specification.
    files
        Performance data. The fleet has all GPU types with data of the model, whole and with MIG, as the data describes
        them.
    model
        The model's name in the data, if it differs from that in the specification.
    ttft_ms, tpot_ms, percentile
        Limits that replace those of the specification, and the percentage of the requests that must keep them.
    prompt, output
        Token counts, if the specification takes its requests from a data set.

    Raises
    ------
    InputError
        If token counts or limits are missing, or no data describes the model.
    """  # fmt: skip
    loads, name = spec.loads(prompt, output), model or spec.model
    known = sorted({one for data in files for one in data.models})
    if name not in known:
        raise InputError(f"--model {name}: no performance data; there is data for {', '.join(known)}")
    limits = {"ttft_ms": ttft_ms or spec.ttft_ms, "tpot_ms": tpot_ms or spec.tpot_ms, "percentile": percentile}
    if None in (limits["ttft_ms"], limits["tpot_ms"]):
        raise InputError("the specification asks for no TTFT and TPOT; give --ttft-ms and --tpot-ms")
    busiest = max(loads, key=lambda load: load.rate_rps or 0.0)
    even = {"process": "renewal", "cv": 0.0} if spec.arrivals == "constant" else {"process": "poisson"}
    asked = spec.counts(prompt, output)
    tokens: dict[str, object] = {"input": _quantiles(asked[0]), "output": _quantiles(asked[1])}
    if spec.prefix is not None:
        tokens["shared_prefix"] = spec.prefix
    with refused("minimum"):
        return Instance(
            version=1, name="minimum", objective="min_gpus", fleet=_fleet(name, files), performance=tuple(files),
            workloads=[{"name": "requests", "model": name, "rate_rps": busiest.rate_rps, "tokens": tokens,
                        "arrivals": even, "slo": {key: value for key, value in limits.items() if value}}],
        )


def _fleet(model: str, files: Sequence[TokenModels]) -> list[dict[str, object]]:
    """Fleet entries of all GPU types with data of a model: whole GPUs, or GPUs with MIG, as the data describes them."""
    offers = [(data.gpu, profile != WHOLE) for data in files if model in data.models
              for profile in data.models[model].slices]
    return [{"gpu": gpu, "mig": mig} for gpu, mig in dict.fromkeys(offers)]


def _quantiles(counts: TokenCounts) -> dict[str, object]:
    pairs = zip(counts.levels, counts.tokens, strict=True)
    return {"quantiles": [(100 * level, max(tokens, 1.0)) for level, tokens in pairs]}
