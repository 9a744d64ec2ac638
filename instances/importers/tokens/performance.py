"""Fits performance data of a language model to benchmarks of its server, by replays of the same loads."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from provision.instances.files.files import refused
from provision.instances.importers.importer import poor_fit
from provision.instances.importers.tokens.guidellm import measured_counts, read_guidellm, read_guidellm_csv
from provision.instances.importers.tokens.server import Server
from provision.instances.importers.tokens.vllm_bench import read_aiperf, read_vllm_bench
from provision.models.base.errors import InputError
from provision.models.fitting.tokens import TokenFit, figures_of, fit_tokens
from provision.models.performance.tokens.data import TokenModels
from provision.models.performance.tokens.loads import Figures, TokenBenchmark, TokenLoad
from provision.models.performance.tokens.records import Engine
from provision.models.performance.tokens.step import TokenCosts

DIGITS = 4
"""Significant digits of a coefficient in a file."""


def read_benchmarks(tool: str, paths: Sequence[str | Path], concurrency: int | None = None) -> list[TokenBenchmark]:
    """Read all runs in files of ``guidellm``, ``vllm`` or ``aiperf``.

    ``concurrency`` is for files that do not tell how requests were sent: it is the number of clients, each of which
    sent a request when its previous request was answered. Raises InputError if a file cannot be used.
    """
    runs = [_per_request(run) for path in paths for run in _read(tool, path)]
    return [run if run.load or concurrency is None else _closed(run, concurrency) for run in runs]


def _read(tool: str, path: str | Path) -> list[TokenBenchmark]:
    if tool == "aiperf":
        return [read_aiperf(path)]
    if tool == "vllm":
        return read_vllm_bench(path)
    return read_guidellm_csv(path) if Path(path).suffix == ".csv" else read_guidellm(path)


def _per_request(run: TokenBenchmark) -> TokenBenchmark:
    """A copy of a run with one kind of inter-token latency: the mean of each request, if the run reports such means,
    otherwise the time between single tokens.
    """
    found = run.tpot if run.tpot.percentiles and not (run.itl.mean and run.tpot.mean is None) else run.itl
    if found.mean is None and 50.0 in found.percentiles:
        found = Figures(mean=found.percentiles[50.0], percentiles=found.percentiles)
    return run.model_copy(update={"itl": found})


def _closed(run: TokenBenchmark, concurrency: int) -> TokenBenchmark:
    """A run with a closed load of ``concurrency`` clients and the measured numbers of tokens."""
    if not run.completed or not run.rate_rps:
        raise InputError(f"{run.name}: does not tell how long it took; run the benchmark again with more requests")
    load = TokenLoad(arrivals="closed", concurrency=concurrency, duration_s=run.completed / run.rate_rps,
                     prompt=measured_counts(run.prompt), output=measured_counts(run.output))
    return run.model_copy(update={"load": load})


def fitted_performance(runs: Sequence[TokenBenchmark], server: Server) -> tuple[TokenModels, str]:
    """Fit performance data to runs on one server; return the data and a line on its error on the same runs. Raises
    InputError if no run tells both how requests were sent and how long tokens took, or a field is out of range.
    """
    limits = server.limits
    engine = Engine(limits.tokens_per_iteration, max(limits.max_sequences), limits.block_tokens,
                    server.kv_tokens // limits.block_tokens)
    fit = fit_tokens(runs, engine)
    told = server._replace(kv_tokens=fit.engine.kv_tokens)
    return performance_of(fit.costs, told, f"fitted to {len(runs)} benchmark runs"), _misfit(runs, fit)


def performance_of(costs: TokenCosts, server: Server, source: str) -> TokenModels:
    """Return performance data of a model on one slice, with coefficients rounded to DIGITS significant digits. Raises
    InputError if a field is out of range.
    """
    slice_ = {f"{name}_ms": float(f"{value:.{DIGITS}g}") for name, value in costs._asdict().items() if value}
    with refused(f"--gpu {server.gpu} --profile {server.profile}"):
        return TokenModels(
            version=1, kind="tokens", name=f"{server.model}-{server.gpu}", gpu=server.gpu, engine=server.limits,
            source=source,
            models={server.model: {"slices": {server.profile: {"kv_tokens": server.kv_tokens, **slice_}}}},
        )


def _misfit(runs: Sequence[TokenBenchmark], fit: TokenFit) -> str:
    told = [(run, figures_of(run, fit)) for run in runs if run.load]
    parts, worst = [], 0.0
    for name, at in (("first token", 0), ("per token", 1)):
        pairs = [(found[at].mean, (run.ttft, run.itl)[at].mean) for run, found in told]
        errors = [abs((was or 0.0) / truth - 1) for was, truth in pairs if truth]
        if errors:
            parts.append(f"{name} {np.mean(errors):.1%}")
            worst = max(worst, float(np.mean(errors)))
    line = f"{len(told)} runs, errors of mean times on these same runs: {', '.join(parts) or 'no means to compare'}"
    return "\nwarning: ".join([line, *poor_fit(worst, "the fit")])
