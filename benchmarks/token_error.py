"""How far predicted times to the first token and between tokens are from measured ones, on sweeps not fitted.

Fits one set of coefficients to all GuideLLM sweeps (``*.json``) of TRAIN_DIR, predicts every run of those of TEST_DIR
at its measured load, and compares. With --folds K, TEST_DIR is not needed: the sweeps of TRAIN_DIR are dealt
out in turn, and those of each of the K folds are predicted from a fit to all others; as many folds as sweeps leave
one out at a time. Means of runs whose clients' clocks were broken (negative times) are not compared.

With --composed nothing is fitted here: a server of Llama-3.1-8B on an H100 is composed of operator times and of what
ships for vLLM. Its corrections saw the means of every third of these runs, and its front end's times come from a fit to
them.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "papers"))
sys.path.insert(0, str(Path(__file__).parent / "tokens"))
import results
from silicon_rows import IDLE_MS

from provision.instances.importers.tokens.guidellm import read_guidellm
from provision.models.fitting.operators.costs import fit_costs
from provision.models.fitting.tokens import TokenFit, figures_of, fit_tokens
from provision.models.performance.operators.compose import Served
from provision.models.performance.operators.decoder import shipped_decoder
from provision.models.performance.operators.servers import server_software, shipped_operators
from provision.models.performance.tokens.loads import Figures, TokenBenchmark
from provision.models.performance.tokens.records import Engine

ENGINE = Engine(budget_tokens=8192, most_sequences=1024, block_tokens=16, kv_blocks=27500)
"""vLLM's defaults on an H100; the fit begins with the KV blocks of 2 MiB that 90 % of its 80 GiB hold beside 16 GB of
weights and 3 GB of activations."""
MODEL, GPU = "llama-3.1-8b", "h100-80gb"
COLUMNS = ("mean", 50.0, 95.0, 99.0)
Sweeps = dict[str, list[TokenBenchmark]]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", metavar="TRAIN_DIR", type=Path)
    parser.add_argument("test", metavar="TEST_DIR", type=Path, nargs="?")
    parser.add_argument("--composed", action="store_true", help="predict TRAIN_DIR from operator times")
    results.add_results(parser)
    parser.add_argument("--folds", metavar="K", type=int, help="judge sweeps of TRAIN_DIR by fits to others")
    arguments = parser.parse_args()
    train = _sweeps(arguments.train)
    if arguments.composed:
        fit = _composed()
        errors = {name: _errors(name, sweep, fit) for name, sweep in train.items()}
    elif arguments.folds:
        errors = _left_out(train, arguments.folds)
    elif arguments.test:
        fit = _fit(train)
        errors = {name: _errors(name, sweep, fit) for name, sweep in _sweeps(arguments.test).items()}
    else:
        parser.error("name a TEST_DIR, or add --folds 3 or --composed")
    name = "sweeps-composed" if arguments.composed else "sweeps-left-out" if arguments.folds else ""
    _conclude(errors, name, arguments.results if name else None)


def _sweeps(folder: Path) -> Sweeps:
    sweeps = {path.stem: read_guidellm(path) for path in sorted(folder.glob("*.json"))}
    if not sweeps:
        sys.exit(f"{folder}: no *.json in there; name a folder of GuideLLM's sweeps")
    return sweeps


def _composed() -> TokenFit:
    """A server of Llama-3.1-8B on an H100, composed of operator times, with GuideLLM's clients. It does not schedule
    ahead: the sweeps are from October 2025.
    """
    served = Served(shipped_decoder(MODEL), shipped_operators()[GPU])
    software = server_software("vllm", MODEL, GPU)
    costs = software.around(fit_costs(served).costs, served.decoder, 1)._replace(idle=IDLE_MS)
    return TokenFit(costs, ENGINE._replace(kv_blocks=served.kv_tokens // ENGINE.block_tokens))


def _left_out(sweeps: Sweeps, folds: int) -> dict[str, np.ndarray]:
    """Errors of every sweep under a fit without its fold."""
    errors = {}
    for fold in range(min(folds, len(sweeps))):
        left_out = list(sweeps)[fold::folds]
        fit = _fit({name: sweep for name, sweep in sweeps.items() if name not in left_out})
        errors |= {name: _errors(name, sweeps[name], fit) for name in left_out}
    return errors


def _fit(sweeps: Sweeps) -> TokenFit:
    fit = fit_tokens([run for sweep in sweeps.values() for run in sweep], ENGINE)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in fit.costs._asdict().items())
    print(f"fit to {len(sweeps)} sweeps (ms): {shown}; {fit.engine.kv_blocks} KV blocks", flush=True)
    return fit


def _errors(name: str, sweep: list[TokenBenchmark], fit: TokenFit) -> np.ndarray:
    """Relative errors (runs, 8): mean, P50, P95, P99 of TTFT, then of ITL; NaN where nothing sound was measured."""
    errors = []
    for run in sweep:
        pairs = zip(figures_of(run, fit), (run.ttft, run.itl), strict=True)
        errors.append([_error(*pair, column) for pair in pairs for column in COLUMNS])
        cells = " ".join(f"{100 * error:7.1f}" for error in errors[-1])
        print(f"{name:22} {run.name[:16]:16} {cells}", flush=True)
    return np.array(errors)


def _error(predicted: Figures, measured: Figures, column: str | float) -> float:
    was, truth = (one.mean if column == "mean" else one.percentiles.get(column) for one in (predicted, measured))
    if truth is None or truth <= 0:
        return np.nan
    return (was or 0.0) / truth - 1


def _conclude(errors: dict[str, np.ndarray], name: str, folder: str | None) -> None:
    """Errors over all runs of all sweeps, in percent, and the band that nine of ten measured values are in."""
    every = np.concatenate(list(errors.values()))
    low, high = np.nanquantile(1 / (1 + every), (0.05, 0.95), axis=0)
    size = 100 * np.abs(every)
    mean, median = np.nanmean(size, axis=0), np.nanmedian(size, axis=0)
    names = [f"{kind} {'mean' if column == 'mean' else f'P{column:.0f}'}" for kind in ("TTFT", "ITL")
             for column in COLUMNS]
    print("median errors, %: " + ", ".join(f"{name} {value:.1f}" for name, value in zip(names, median, strict=True)))
    rows = zip(names, median.tolist(), low.tolist(), high.tolist(), strict=True)
    results.write(folder, name, ("figure", "median_error", "low", "high"), rows)
    print("measured over predicted, 5 to 95 %: "
          + ", ".join(f"{one} {a:.2f} to {b:.2f}" for one, a, b in zip(names, low, high, strict=True)))
    print(
        f"shapes {len(errors)} ttft_mean {mean[0]:.2f} itl_mean {mean[4]:.2f} "
        f"ttft_p99 {median[3]:.2f} itl_p99 {median[7]:.2f}"
    )


if __name__ == "__main__":
    main()
