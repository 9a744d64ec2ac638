"""Small instances with language models: an 8B model on whole GPUs and slices, coefficients made up in proportion."""

from provision.models.fitting.tokens import FITTED, TYPICAL
from provision.models.problem.instance import Instance

COSTS = {f"{name}_ms": getattr(TYPICAL, name) for name in FITTED}
CHAT = {"input": {"min": 100.0, "max": 300.0}, "output": {"min": 20.0, "max": 60.0}}
LIMITS = {"ttft_ms": 300.0, "tpot_ms": 20.0}


def times_as_long(factor):
    """The coefficients of a slice that is so much slower."""
    return {name: value * factor for name, value in COSTS.items()}


def performance(gpu, model="llama-8b", engine=None, **slices):
    """Performance data of one model; every slice is (KV tokens, how much slower than an H100)."""
    found = {name.replace("g", "g.", 1) if name.endswith("gb") else name: {"kv_tokens": tokens, **times_as_long(factor)}
             for name, (tokens, factor) in slices.items()}
    return {"version": 1, "kind": "tokens", "name": f"{model}-{gpu}", "gpu": gpu, "engine": engine or {},
            "models": {model: {"slices": found}}}


def chat(name="chat", rate_rps=100.0, **changes):
    """A workload of short requests."""
    return {"name": name, "model": "llama-8b", "rate_rps": rate_rps, "tokens": CHAT, "slo": LIMITS} | changes


def instance(workloads, fleet=None, files=None, **changes):
    """An instance on whole H100s unless told otherwise."""
    return Instance(
        version=1, name="tokens", fleet=fleet or [{"gpu": "h100-80gb", "mig": False}],
        performance=files or [performance("h100-80gb", whole=(400_000, 1.0))], workloads=workloads, **changes,
    )  # fmt: skip
