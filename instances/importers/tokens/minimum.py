"""Makes an instance from an inference-perf specification; its objective is the fewest GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from provision.instances.files.files import refused
from provision.instances.importers.tokens.inference_perf import InferencePerf
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import WHOLE
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import TokenCounts
from provision.models.problem.instance import Instance


def minimum_instance(
    spec: InferencePerf, files: Sequence[TokenModels], model: str | None = None, ttft_ms: float | None = None,
    tpot_ms: float | None = None, percentile: float | None = None, prompt: TokenCounts | None = None,
    output: TokenCounts | None = None,
) -> Instance:
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
