"""How far predictions are from vLLM servers under Poisson arrivals that nothing was fitted to.

    .venv/bin/python benchmarks/servers.py EXPERIMENTS.csv MEASURED.csv

EXPERIMENTS has a server and a load per row, MEASURED what clients saw of it, in ms, by stage; stage -1 is the whole
run. Every server is composed of the operator times that ship, or of those in --tables, and corrected by what ships for
vLLM. Stages are replayed one after another by the simulator's engine; the next begins when all answers of the last are
in.

Prompts are a system prompt and a question. There are ``system_prompts`` times ``users_per_prompt`` different ones, sent
in turn, as inference-perf does. The prefix cache knows a system prompt after its first request, and a whole prompt when
it comes again, if the blocks of all prompts and answers between fit the memory. With ``cpu_offload`` they always do.
Where ``users_per_prompt`` is blank no question comes again.

A model or a GPU type that is not known costs one line, and the other experiments are judged. The last line: ``rows N
all E ttft_mean E ttft_p99 E itl_mean E e2e_mean E e2e_p99 E inside90 F``: medians of absolute errors over whole runs,
in percent, ``all`` over every figure measured, and the part of measured values, in percent, within the 90 % bands.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "papers"))
import results

from provision.models.base.arrays import Floats, Ints
from provision.models.base.errors import InputError
from provision.models.fitting.operators.costs import fit_costs
from provision.models.fitting.operators.laws import fit_operators
from provision.models.fitting.operators.residuals import TableResiduals
from provision.models.performance.bands import TokenBands
from provision.models.performance.operators.compose import MEMORY_PART, PLAIN, Served, check
from provision.models.performance.operators.decoder import shipped_decoder, shipped_name
from provision.models.performance.operators.servers import operator_gpu, server_software, shipped_operators
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.operating import EVERYBODY, hiccups_ms
from provision.models.performance.tokens.records import Engine, request_table
from provision.models.performance.tokens.step import TokenCosts

WHOLE_RUN = -1
FIGURES = ("ttft_mean", "ttft_p90", "ttft_p99", "itl_mean", "e2e_mean", "e2e_p90", "e2e_p99")
SHOWN = ("ttft_mean", "ttft_p99", "itl_mean", "e2e_mean", "e2e_p99")
PRECISIONS = {"": PLAIN, "auto": PLAIN, "fp16": PLAIN, "float16": PLAIN, "bf16": PLAIN, "bfloat16": PLAIN,
              "half": PLAIN, "w8a8": "fp8", "fp8_dynamic": "fp8", "fp4": "nvfp4"}
"""Names of precisions as vLLM's users write them; others stand as they are."""
LARGE_GPUS = ("h100-80gb", "h200-141gb", "b200-180gb")
LARGE, SMALL = (8192, 1024), (2048, 256)
"""vLLM's default tokens of an iteration and sequences of its API server: on LARGE_GPUS, and on others."""
BLOCK = 16
SEEDS = range(3)
LONGEST_S = 24 * 3600.0


class Stage(NamedTuple):
    """Requests at a rate for some time."""

    rate_rps: float
    duration_s: float


class Experiment(NamedTuple):
    """A server and the load on it, as a row of EXPERIMENTS says."""

    key: str
    model: str
    gpu: str
    tp: int
    replicas: int
    precision: str
    workload: str
    stages: tuple[Stage, ...]
    system_prompts: int
    users: int
    system_tokens: int
    question_tokens: int
    output_tokens: int
    budget: int
    sequences: int
    memory_part: float
    offload: bool

    @property
    def prompt(self) -> int:
        """Tokens of a whole prompt."""
        return self.system_tokens + self.question_tokens


class Server(NamedTuple):
    """What the prediction of an experiment is made of."""

    costs: TokenCosts
    engine: Engine
    bands: TokenBands


class Judged(NamedTuple):
    """A measured run: predicted and measured figures in ms, (FIGURES,), NaN where not measured, and what is in bands.

    ``inside`` holds a flag for every figure that was measured.
    """

    experiment: Experiment
    stage: int
    predicted: Floats
    measured: Floats
    inside: list[bool]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", metavar="EXPERIMENTS.csv", type=Path)
    parser.add_argument("measured", metavar="MEASURED.csv", type=Path)
    parser.add_argument("--tables", metavar="DIR", help="aiconfigurator's tables, in place of what was fitted to them")
    parser.add_argument("--out", type=Path, metavar="F", help="a line per run and stage: predicted and measured (.csv)")
    results.add_results(parser)
    arguments = parser.parse_args()
    measured = _measured(arguments.measured)
    judged: list[Judged] = []
    left_out: dict[str, list[str]] = {}
    experiments = _rows(arguments.experiments)
    for row in experiments:
        key = (row.get("exp_id") or "").strip()
        try:
            if not measured.get(key):
                raise InputError("nothing measured")
            experiment = _experiment(key, row)
            judged += _judge(experiment, _server(experiment, arguments.tables), measured[key])
            if not any(stage == WHOLE_RUN for stage, _ in measured[key]):
                raise InputError("no whole run measured, only stages")
        except InputError as error:
            left_out.setdefault(str(error).splitlines()[0], []).append(key or "?")
    for key in measured.keys() - {(row.get("exp_id") or "").strip() for row in experiments}:
        left_out.setdefault("measured, but no such experiment", []).append(key or "?")
    for reason, keys in sorted(left_out.items()):
        print(f"left out: {reason} ({len(keys)}: {', '.join(keys)})")
    runs = [one for one in judged if one.stage == WHOLE_RUN]
    if not runs:
        sys.exit("no experiment has both a server that is known and a measured whole run (stage_index -1); check that "
                 "exp_id is the same in both files")
    if arguments.out:
        _table(arguments.out, judged)
    _conclude(runs, arguments.results)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot be read ({error}); name a CSV file")


def _measured(path: Path) -> dict[str, list[tuple[int, Floats]]]:
    """By experiment its measured stages: their index, and the figures in ms, NaN for blanks."""
    found: dict[str, list[tuple[int, Floats]]] = {}
    for row in _rows(path):
        figures = np.array([_number(row.get(name)) for name in FIGURES])
        figures[~(figures > 0)] = np.nan
        stage = _number(row.get("stage_index"))
        if np.isfinite(figures).any() and np.isfinite(stage):
            found.setdefault((row.get("exp_id") or "").strip(), []).append((int(stage), figures))
    return found


def _number(text: str | None, default: float = np.nan) -> float:
    try:
        return float(text) if text and text.strip() else default
    except ValueError:
        return np.nan


def _experiment(key: str, row: dict[str, str]) -> Experiment:
    """An experiment from its row.

    Raises
    ------
    InputError
        When a column is missing or out of range, or the model or GPU is not known.
    """
    name = (row.get("model") or "").strip()
    model = shipped_name(name)
    if model is None:
        raise InputError(f"model {name or '(blank)'}: its dimensions do not ship")
    gpu = _gpu((row.get("hardware") or "").strip())
    budget, sequences = LARGE if gpu in LARGE_GPUS else SMALL
    tp = _whole(row, "tp", 1)
    precision = (row.get("precision") or "").strip().lower()
    precision = "mxfp4" if model.startswith("gpt-oss") else PRECISIONS.get(precision, precision)
    budget = _whole(row, "max_num_batched_tokens", budget)
    return Experiment(
        key, model, gpu, tp, max(_whole(row, "gpus", tp) // tp, 1), precision, row.get("workload") or "",
        tuple(_stages(row)), _whole(row, "system_prompts", 1), _whole(row, "users_per_prompt", 0),
        _whole(row, "system_prompt_tokens", 0), _whole(row, "question_tokens", 1), _whole(row, "output_tokens"), budget,
        min(sequences, budget), _number(row.get("gpu_memory_utilization"), MEMORY_PART),
        (row.get("cpu_offload") or "").strip().lower() not in ("", "0", "0.0", "false", "no", "none", "off"),
    )


def _gpu(hardware: str) -> str:
    """The GPU type with operator times that a name such as ``H100`` or ``A100-80GB`` means."""
    words = hardware.lower().replace("nvidia", " ").replace("_", "-").split()
    try:
        return operator_gpu(words[0].split("-")[0] if words else "")
    except InputError:
        raise InputError(f"hardware {hardware or '(blank)'}: there are no operator times of it") from None


def _whole(row: dict[str, str], name: str, default: int | None = None) -> int:
    """A count from a row; blank is ``default``."""
    value = _number(row.get(name), np.nan if default is None else default)
    if not (np.isfinite(value) and value >= min(default or 1, 1)):
        raise InputError(f"{name} {row.get(name) or '(blank)'}: should be a count")
    return int(value)


def _stages(row: dict[str, str]) -> Iterator[Stage]:
    """The stages of a load; one duration may stand for all."""
    rates, durations = ([_number(one) for one in (row.get(name) or "").split("|") if one.strip()]
                        for name in ("rates", "durations_s"))
    if len(durations) == 1:
        durations *= len(rates)
    sound = bool(rates) and all(0 < one < np.inf for one in rates) and all(0 < one <= LONGEST_S for one in durations)
    if len(rates) != len(durations) or not sound:
        raise InputError(f"rates {row.get('rates')}, durations_s {row.get('durations_s')}: should be as many numbers "
                         "above 0")
    yield from map(Stage, rates, durations)


KNOWN: dict[tuple[object, ...], TokenCosts] = {}
"""Composed coefficients, each computed once."""


def _server(one: Experiment, tables: str | None) -> Server:
    """The server of an experiment.

    Raises
    ------
    InputError
        When there are no operator times for it, or the memory is too small.
    """
    if tables:
        laws = fit_operators(tables, one.gpu)
        factors = TableResiduals(tables, one.gpu, laws)
    else:
        laws, factors = shipped_operators()[one.gpu], None
    served = Served(shipped_decoder(one.model), laws, one.tp, one.precision, PLAIN, factors, one.memory_part)
    where = f"{one.model} in {one.precision} on {one.tp} {one.gpu}"
    try:
        check(served)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    aside = one.system_prompts * (one.system_tokens // BLOCK)
    blocks = served.kv_tokens // BLOCK
    if (blocks - aside) * BLOCK < one.question_tokens + BLOCK + one.output_tokens:
        raise InputError(f"{where}: its memory of {served.kv_tokens} tokens does not hold the requests")
    key = (one.model, one.gpu, one.tp, one.precision, one.memory_part)
    if key not in KNOWN:
        KNOWN[key] = fit_costs(served).costs
    software = server_software("vllm", one.model, one.gpu)
    engine = Engine(one.budget, one.sequences, BLOCK, blocks, scheduled_ahead=software.scheduled_ahead)
    return Server(software.around(KNOWN[key], served.decoder, one.tp), engine, software.bands)


def _judge(one: Experiment, server: Server, measured: list[tuple[int, Floats]]) -> Iterator[Judged]:
    """Predictions beside all that was measured of an experiment."""
    seeds = [_replayed(one, server, seed) for seed in SEEDS]
    for stage, figures in measured:
        if stage >= len(one.stages):
            continue
        parts = [np.concatenate(times_ms if stage == WHOLE_RUN else times_ms[stage : stage + 1], axis=1)
                 for times_ms in seeds]
        predicted = np.mean([_figures(times_ms) for times_ms in parts], axis=0)
        low, high = _bands(predicted, server.bands)
        inside = [bool(low[at] <= figures[at] <= high[at]) for at in np.flatnonzero(np.isfinite(figures))]
        yield Judged(one, stage, predicted, figures, inside)


def _replayed(one: Experiment, server: Server, seed: int) -> list[Floats]:
    """Of every stage the times to the first token, between tokens, and of whole answers, in ms: (3, requests)."""
    random, sent, found = np.random.default_rng(seed), 0, []
    aside = one.system_prompts * (one.system_tokens // BLOCK)
    engine = server.engine._replace(kv_blocks=server.engine.kv_blocks - aside)
    total = sum(_requests(stage) for stage in one.stages)
    order = random.permutation(one.system_prompts * one.users if one.users else total)
    for stage in one.stages:
        count = _requests(stage)
        planned_ms = 1000 * np.cumsum(random.exponential(1 / stage.rate_rps, count))
        reused, shared = _reused(one, server.engine, np.arange(sent, sent + count), order)
        owner = random.integers(one.replicas, size=count)
        times_ms = np.empty((3, count))
        for replica in range(one.replicas):
            mine = np.flatnonzero(owner == replica)
            times_ms[:, mine] = _answered(one, server.costs, engine, planned_ms[mine], reused[mine], shared[mine], seed)
        sent += count
        found.append(times_ms)
    return found


def _requests(stage: Stage) -> int:
    return max(round(stage.rate_rps * stage.duration_s), 1)


def _answered(one: Experiment, costs: TokenCosts, engine: Engine, planned_ms: Floats, reused: Ints, shared: Ints,
              seed: int) -> Floats:
    """The three times of requests at one replica, in ms, (3, requests)."""
    count = len(planned_ms)
    if not count:
        return np.empty((3, 0))
    table = request_table(planned_ms, np.full(count, one.prompt), np.full(count, one.output_tokens), engine,
                          reused=reused, shared_blocks=shared)
    replay(table, engine, costs, EVERYBODY, np.inf)
    first_ms = table["first_ms"] + hiccups_ms(costs, count, seed)
    end_ms = np.maximum(table["end_ms"], first_ms)
    gaps_ms = (table["end_ms"] - table["first_ms"]) / max(one.output_tokens - 1, 1)
    return np.array([first_ms - planned_ms, gaps_ms, end_ms - planned_ms])


def _reused(one: Experiment, engine: Engine, number: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Tokens of the prompts of requests, by their number in the run, that need not be computed, and blocks in common.

    ``order`` is that in which prompts are sent in turn; the system prompt of prompt p is p modulo ``system_prompts``.
    """
    common = one.system_tokens // BLOCK
    whole = (one.prompt - 1) // BLOCK
    again = number >= len(order)
    held = one.system_prompts * common + len(order) * -(-(one.prompt + one.output_tokens - common * BLOCK) // BLOCK)
    fits = one.offload or held <= engine.kv_blocks * one.replicas
    _, first = np.unique(order % one.system_prompts, return_index=True)
    known = again | ~np.isin(number, first)
    blocks = np.where(again & fits, whole, np.where(known, common, 0))
    return blocks * BLOCK, np.minimum(blocks, common)


def _figures(times_ms: Floats) -> Floats:
    """FIGURES of the requests of a run, in ms."""
    (ttft, whole), gaps = ([one.mean(), *np.percentile(one, (90, 99))] for one in times_ms[::2]), times_ms[1]
    return np.array([*ttft, gaps.mean(), *whole])


def _bands(predicted: Floats, bands: TokenBands) -> tuple[Floats, Floats]:
    """The lowest and the highest value of each figure within the 90 % bands.

    Whole answers have a part that is a time to the first token, and a rest that goes by tokens.
    """
    ends = []
    for ttft, tpot in ((bands.ttft.low, bands.tpot.low), (bands.ttft.high, bands.tpot.high)):
        first = ttft * predicted[:3]
        rest = tpot * np.maximum(predicted[4:] - predicted[:3], 0)
        ends.append(np.array([*first, tpot * predicted[3], *(first + rest)]))
    return ends[0], ends[1]


def _table(path: Path, judged: Iterable[Judged]) -> None:
    """Predicted and measured figures, a line per run and stage."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["exp_id", "model", "gpu", "tp", "workload", "stage_index", *FIGURES,
                         *(f"predicted_{name}" for name in FIGURES)])
        for one in judged:
            said = one.experiment
            writer.writerow([said.key, said.model, said.gpu, said.tp, said.workload, one.stage,
                             *("" if np.isnan(value) else f"{value:.5g}" for value in one.measured),
                             *(f"{value:.5g}" for value in one.predicted)])


def _conclude(runs: list[Judged], folder: str | None) -> None:
    """Medians by model and GPU type, and over all whole runs."""
    groups: dict[str, list[Judged]] = {}
    for one in runs:
        groups.setdefault(f"{one.experiment.model} {one.experiment.gpu} tp {one.experiment.tp}", []).append(one)
    lines = [(name, len(several), *_medians(several)) for name, several in sorted(groups.items())]
    lines.append(("all", len(runs), *_medians(runs)))
    for name, many, *errors in lines:
        shown = " ".join(f"{one} {value:.1f}" for one, value in zip(("all", *SHOWN, "inside90"), errors, strict=True))
        print(f"rows {many} {shown}" if name == "all" else f"{name:40} rows {many} {shown}")
    results.write(folder, "servers", ("group", "rows", "all", *SHOWN, "inside90"), lines, seeds=SEEDS)


def _medians(runs: list[Judged]) -> list[float]:
    """Median absolute errors in percent: over all figures, and of those SHOWN; and the part within bands."""
    errors = np.array([100 * np.abs(one.predicted / one.measured - 1) for one in runs])
    columns = [errors, *(errors[:, FIGURES.index(name)] for name in SHOWN)]
    medians = [float(np.median(seen)) if (seen := one[np.isfinite(one)]).size else float("nan") for one in columns]
    return [*medians, 100 * float(np.mean([flag for one in runs for flag in one.inside]))]


if __name__ == "__main__":
    main()
