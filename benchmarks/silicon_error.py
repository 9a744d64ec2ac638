"""How far composed predictions are from measured servers: TTFT and TPOT in a closed loop, nothing fitted to the rows.

    .venv/bin/python benchmarks/silicon_error.py ../shared/data/aiconfigurator ../shared/data/silicon/agg.csv

Every row is a server under as many clients as its concurrency, each of which sends when it is answered. Its iterations
are composed of the operator times in TABLES, corrected by what ships for the server's software, and replayed by the
simulator's engine. Rows listed twice (``same_as``) and rows without a concurrency are left out. With --bare nothing
fitted to servers is used. With --laws the shipped laws of operators stand in for TABLES. With --fit the corrections are
fitted to rows of ROWS, and every row is predicted by a fit without its group: whole models on a system, then whole
shapes, each dealt into folds. With --sweeps, GuideLLM's sweeps of vLLM with Llama-3.1-8B on an H100 are fitted to as
well, where their group is not left out; no row of theirs is judged.

What ships (models/performance/operators/data/servers.yaml) was fitted to ../shared/data/silicon/agg.csv by --fit
--write: on those rows themselves the figures without --fit are not out of sample, and the program says so.

The last line: ``rows N ttft_median E tpot_median E inside90 F width W``: median absolute relative errors in percent,
the part of measured values, in percent, within the 90 % bands, and the mean width of these (upper less lower end, by
the prediction).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).parent / "papers"))
sys.path.insert(0, str(Path(__file__).parent / "tokens"))
import results
from silicon_rows import AHEAD, DYNAMO, IDLE_MS, PARTS, PROMPTS_ALONE, SEED, Row, read_rows, read_sweeps

from provision.models.base.arrays import Floats
from provision.models.fitting.operators.costs import fit_costs
from provision.models.fitting.operators.laws import fit_operators
from provision.models.fitting.operators.residuals import TableResiduals
from provision.models.performance.bands import Band, TokenBands
from provision.models.performance.operators.compose import MEMORY_PART, Served, check
from provision.models.performance.operators.decoder import shipped_decoder
from provision.models.performance.operators.servers import (
    ServerSoftware,
    shipped_operators,
    shipped_servers,
    software_key,
)
from provision.models.performance.tokens.batching import replay
from provision.models.performance.tokens.operating import figures, replay_load
from provision.models.performance.tokens.records import Clients, request_table
from provision.models.performance.tokens.step import TokenCosts

PARAMETERS = ("decode", "prefill", "step_ms", "sequence_ms", "sync_ms", "request_ms", "delivery_ms", "launch_ms",
              "prompt_ms", "mixture_ms", "dynamo_ms")
BEGIN = np.log([1.0, 1.0, 0.3, 0.015, 0.001, 2.5, 3.6, 0.5, 0.05, 0.04, 60.0])
"""Where fits of the corrections begin, and what they are tied to; in ms but the first two. The front end's times are
those of vLLM under GuideLLM (performance data guidellm-h100-80gb), ``dynamo_ms`` what Dynamo adds to a first token."""
SPREAD = np.array([0.15, 0.1, 0.3, 0.3, 0.5, 0.1, 0.3, 0.3, 0.5, 0.3, 0.3])
"""How far each is expected from there (in powers of e)."""
APART = 0.25
"""How far one software's are expected from those of all, in these. Chosen on the rows of vLLM and SGLang left out by
model and system, among 1 and 0.5 and this; those of TensorRT-LLM judged it."""
OWN_SPREAD = np.array([0.3, 0.4, 0, 0, 0, 0, 0, 0.3, 0, 0, 0])
"""The same for a model on a GPU type, from what was fitted to all servers of its software."""
FRONT_END = {"read_ms": 0.0017, "delivery_sequence_ms": 0.0041, "hiccup_ms": 10.3}
"""Times of the front end that closed loops do not tell, from the same data."""
TTFT_WEIGHT, ROBUST, STEP, STEPS, FARTHEST = 0.35, 0.12, 0.05, 2, 2.0
"""TTFTs are the noisier by far: repeated configurations differ by tens of percent."""
FOLDS = 3
UNSEEN = "model on a system"
"""Groups whose model was never seen on their GPU type, so that the corrections of the software alone are for them."""
KINDS: dict[str, Callable[[Row], tuple[object, ...]]] = {
    UNSEEN: lambda row: (row.model, row.gpu), "model at a tensor parallelism": lambda row: (row.model, row.gpus),
    "shape": lambda row: (row.model, row.isl, row.osl)}
"""What is left out together, and what tells such groups apart."""
EDGES, COMMON = (0.05, 0.95), 200
"""The levels of a band's ends, and the number of rows as which all software's errors count beside a server's own; that
number was chosen on rows left out, among 0 to 400."""
NO_BANDS = TokenBands(ttft=Band(low=1.0, high=1.0), tpot=Band(low=1.0, high=1.0), source="none")
BARE = ServerSoftware(bands=NO_BANDS)
ALL = "all"


class Fold(NamedTuple):
    """Rows left out of a fit, by what they were grouped, and logarithms of their predicted over measured times."""

    kind: str
    places: np.ndarray
    errors: Floats


class Tables:
    """Composed coefficients of servers, each computed once."""

    def __init__(self, folder: str, gpus: set[str], laws: bool) -> None:
        self.laws = {gpu: shipped_operators()[gpu] if laws else fit_operators(folder, gpu) for gpu in gpus}
        self.factors = {} if laws else {gpu: TableResiduals(folder, gpu, self.laws[gpu]) for gpu in gpus}
        self.known: dict[tuple[str, str, int, str, str, float], tuple[Served, TokenCosts]] = {}
        self.predicted: dict[tuple[object, ...], tuple[float, float]] = {}
        """Predictions by row and coefficients: fits of all folds begin with the same."""

    def server(self, row: Row) -> tuple[Served, TokenCosts]:
        """The server of a row, and the coefficients of its GPUs alone."""
        key = (row.model, row.gpu, row.gpus, row.precision, row.kv_precision, row.memory_part)
        if key not in self.known:
            served = Served(shipped_decoder(row.model), self.laws[row.gpu], row.gpus, row.precision, row.kv_precision,
                            self.factors.get(row.gpu), row.memory_part)
            check(served)
            self.known[key] = (served, fit_costs(served).costs)
        return self.known[key]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", metavar="TABLES", help="folder of aiconfigurator's tables")
    parser.add_argument("rows", metavar="ROWS.csv", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit corrections to other groups of ROWS")
    parser.add_argument("--bare", action="store_true", help="operator times alone")
    parser.add_argument("--laws", action="store_true", help="the shipped laws in place of TABLES")
    parser.add_argument("--write", type=Path, metavar="F", help="with --fit: corrections of all rows, with their bands")
    parser.add_argument("--sweeps", type=Path, metavar="DIR", help="with --fit: GuideLLM's sweeps, fitted to as well")
    parser.add_argument("--out", type=Path, metavar="F", help="a line per row: predicted and measured (.csv)")
    results.add_results(parser)
    arguments = parser.parse_args()
    rows = list(read_rows(arguments.rows)) + (list(read_sweeps(arguments.sweeps)) if arguments.fit and arguments.sweeps
                                           else [])
    _repeated(rows)
    tables = Tables(arguments.tables, {row.gpu for row in rows}, arguments.laws)
    if arguments.fit:
        groups, errors, bands = _left_out(tables, rows)
        if arguments.write:
            _write(arguments.write, tables, rows, errors, arguments.rows)
    else:
        errors, bands = _shipped(tables, rows, arguments.bare, arguments.rows)
        groups = [(f"{row.software} {row.model} {row.gpu}",) for row in rows]
    if arguments.out:
        _table(arguments.out, rows, errors)
    mode = "-".join(name for name in ("bare", "laws", "fit") if getattr(arguments, name)) or "shipped"
    _conclude(f"silicon-{mode}", groups, errors, bands, arguments.results)


def _repeated(rows: Sequence[Row]) -> None:
    """Print how far rows lie from each other that no prediction can tell apart."""
    alike: dict[Row, list[Row]] = {}
    for row in rows:
        alike.setdefault(row._replace(measured=(0.0, 0.0)), []).append(row)
    pairs = np.array([np.subtract(one[0].measured, one[1].measured) for one in alike.values() if len(one) > 1])
    if len(pairs):
        ttft, tpot = np.median(np.expm1(np.abs(pairs)), axis=0)
        print(f"{len(pairs)} settings are there twice: median distance TTFT {ttft:.1%}, TPOT {tpot:.1%}")


def _predicted(tables: Tables, row: Row, software: ServerSoftware) -> tuple[float, float]:
    """Logarithms of the mean TTFT and TPOT of a row, in ms."""
    served, alone = tables.server(row)
    costs = software.around(alone, served.decoder, row.gpus)
    if (row, costs) in tables.predicted:
        return tables.predicted[row, costs]
    engine = row.engine(served.kv_tokens)
    if row.load is not None:
        ttft, itl = figures(replay_load(row.load, engine, costs._replace(idle=IDLE_MS)))
        return tables.predicted.setdefault((row, costs), (float(np.log(ttft.mean or 1)), float(np.log(itl.mean or 1))))
    prompt, output = row.lengths()
    table = request_table(np.zeros(len(prompt)), prompt, output, engine)
    replay(table, costs=costs, engine=engine, clients=Clients(row.concurrency), until_ms=np.inf)
    table = table[row.warm_up:]
    tpot_ms = ((table["end_ms"] - table["first_ms"]) / np.maximum(table["output"] - 1, 1)).mean()
    ttft_ms = (table["first_ms"] - table["sent_ms"]).mean() + row.waited() * tpot_ms
    return tables.predicted.setdefault((row, costs), (float(np.log(ttft_ms)), float(np.log(tpot_ms))))


def _errors(tables: Tables, rows: Sequence[Row], software: Sequence[ServerSoftware]) -> Floats:
    """(rows, 2) logarithms of predicted over measured TTFT and TPOT."""
    found = [_predicted(tables, row, one) for row, one in zip(rows, software, strict=True)]
    return np.array(found) - np.array([row.measured for row in rows])


def _shipped(tables: Tables, rows: list[Row], bare: bool, path: Path) -> tuple[Floats, list[TokenBands]]:
    """Errors with the corrections that ship, or none, and the shipped bands."""
    known = shipped_servers()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if not bare and any(digest in one.bands.source for one in known.values()):
        print("these rows are those that the shipped corrections were fitted to: the figures are not out of sample; "
              "--fit judges by groups left out")
    missing = sorted({row.software for row in rows} - set(known))
    if missing:
        print(f"nothing ships for {', '.join(missing)}: taken as vllm")
    software = [_of(known, row, known["vllm"]) for row in rows]
    errors = _errors(tables, rows, [BARE if bare else one for one in software])
    return errors, [one.bands for one in software]


def _of(known: Mapping[str, ServerSoftware], row: Row, other: ServerSoftware) -> ServerSoftware:
    """The corrections for a row: its model's on its GPU type, else its software's, else others."""
    return known.get(software_key(row.software, row.model, row.gpu), known.get(row.software, other))


def _within(error: Floats, bands: TokenBands) -> list[bool]:
    ratio = np.exp(-error)
    return [bool(band.low <= one <= band.high) for one, band in zip(ratio, (bands.ttft, bands.tpot), strict=True)]


def _folds(rows: list[Row]) -> Iterator[tuple[str, np.ndarray]]:
    """Groups of KINDS to leave out, each kind in FOLDS."""
    for kind, key in KINDS.items():
        groups = sorted({key(row) for row in rows if row.load is None})
        order = np.random.default_rng(SEED).permutation(len(groups))
        for fold in range(FOLDS):
            chosen = {groups[at] for at in order[fold::FOLDS]}
            yield kind, np.array([key(row) in chosen for row in rows])


def _left_out(tables: Tables, rows: list[Row]) -> tuple[list[tuple[str, ...]], Floats, list[TokenBands]]:
    """Errors of every row under fits without its groups, one below the other, and the bands.

    Beside them stands what the groups were, by server and by GPU type.

    Bands are those of the errors of all other folds, of rows that are not in this one.
    """
    found: list[Fold] = []
    for kind, out in _folds(rows):
        fits = _fit_all(tables, [row for row, left in zip(rows, out, strict=True) if not left])
        sweeps = np.array([row.load is not None for row in rows])
        for what, those in (("runs of sweeps", out & sweeps), ("rows", out & ~sweeps)):
            apart = [rows[at] for at in np.flatnonzero(those)]
            if apart:
                errors = _errors(tables, apart, [_of(fits, row, BARE) for row in apart])
                size = np.median(np.abs(np.expm1(errors)), axis=0)
                print(f"left out by {kind}: {len(apart)} {what}, median TTFT {size[0]:.1%}, TPOT {size[1]:.1%}",
                      flush=True)
        found.append(Fold(kind, np.flatnonzero(out & ~sweeps), errors))
    every, errors, groups = [], [], []
    for number, fold in enumerate(found):
        others = [one for at, one in enumerate(found)
                  if at != number and (one.kind == UNSEEN) == (fold.kind == UNSEEN)]
        bands = _bands(rows, others, "other folds", fold.places)
        every += [bands.get(rows[at].server, bands[ALL]) for at in fold.places]
        errors.append(fold.errors)
        kind = f"left out by {fold.kind}"
        groups += [(f"{kind} under {rows[at].server}", f"{kind} on {rows[at].gpu}", kind) for at in fold.places]
    return groups, np.concatenate(errors), every


def _bands(rows: list[Row], found: list[Fold], source: str, apart: Sequence[int] = ()) -> dict[str, TokenBands]:
    """Bands of measured over predicted from rows that are not ``apart``, by server, and of ALL.

    A row to come is of a group that was not seen, and errors within a group are alike: every group that was left out
    counts the same, however many rows it has. Errors under one server are those of few models, and what its software
    adds is alike: the logarithms of the ends are means of its own quantiles, weighted by its rows, and of those of all,
    weighted by COMMON.
    """
    places, logs = np.concatenate([fold.places for fold in found]), -np.concatenate([fold.errors for fold in found])
    groups = np.array([f"{fold.kind} {KINDS[fold.kind](rows[at])}" for fold in found for at in fold.places])
    kept = ~np.isin(places, apart)
    places, logs, groups = places[kept], logs[kept], groups[kept]
    servers = np.array([rows[at].server for at in places])
    common, bands = _ends(logs, groups), {}
    for server in [ALL, *sorted(set(servers.tolist()))]:
        own = logs[servers == server]
        ends = common
        if len(own):
            ends = (len(own) * _ends(own, groups[servers == server]) + COMMON * common) / (len(own) + COMMON)
        ttft, tpot = (Band(low=float(f"{low:.3g}"), high=float(f"{high:.3g}")) for low, high in np.exp(ends).T)
        bands[server] = TokenBands(ttft=ttft, tpot=tpot, source=source)
    return bands


def _ends(logs: Floats, groups: np.ndarray) -> Floats:
    """(2, 2) quantiles at EDGES of errors in TTFT and TPOT, every group with the same weight."""
    _, of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(np.quantile(logs, EDGES, axis=0, weights=1 / sizes[of], method="inverted_cdf"))


def _fit_all(tables: Tables, rows: list[Row]) -> dict[str, ServerSoftware]:
    """The corrections of every software, and of every model on a GPU type under it, each fitted to its rows.

    A software's are tied to those of all software: each was seen with few models, and what it adds is alike.
    """
    found, common = {}, _fit(tables, rows, BEGIN, SPREAD)
    for server in sorted({row.server for row in rows}):
        its = [row for row in rows if row.server == server]
        logs = _fit(tables, its, common, APART * SPREAD)
        found |= {name: _software(logs, name) for name in (f"{DYNAMO}{server}", server)}
        for software, model, gpu in sorted({(row.software, row.model, row.gpu) for row in its}):
            own = [row for row in its if (row.software, row.model, row.gpu) == (software, model, gpu)]
            fitted = _fit(tables, own, logs, OWN_SPREAD)
            found[software_key(software, model, gpu)] = _software(fitted, software)
    return found


def _fit(tables: Tables, rows: list[Row], begin: Floats, spread: Floats) -> Floats:
    """Gauss and Newton on logarithms, with ties to where it begins and weights that fall with an error's size.

    Models on a GPU type count by the square roots of their numbers of rows.
    """
    logs = begin.copy()
    free = spread > 0
    groups = [(row.model, row.gpu) for row in rows]
    counts = np.array([groups.count(one) for one in groups])
    weights = (len(rows) / len(set(groups)) / counts)[:, None] ** 0.25 * np.array([TTFT_WEIGHT, 1.0])
    for _ in range(STEPS):
        def errors(at: Floats) -> Floats:
            software = {name: _software(at, name) for name in {row.software for row in rows}}
            return np.asarray(_errors(tables, rows, [software[row.software] for row in rows]) * weights).ravel()

        base = errors(logs)
        moved = [errors(logs + STEP * one) for one in np.eye(len(logs))[free]]
        slopes = (np.array(moved) - base).T / STEP * spread[free]
        tied, change = ((logs - begin) / np.where(free, spread, 1))[free], np.zeros(free.sum())
        for _ in range(10):
            off = base + slopes @ change
            trust = 1 / np.sqrt(1 + (off / ROBUST) ** 2) / ROBUST**2
            matrix = (slopes * trust[:, None]).T @ slopes + np.eye(len(change))
            change = -np.linalg.solve(matrix, slopes.T @ (trust * base) + tied)
        logs[free] += spread[free] * np.clip(change, -FARTHEST, FARTHEST)
    return logs


def _software(logs: Floats, name: str) -> ServerSoftware:
    """The corrections of fitted coefficients for a software by name, behind the front end of Dynamo or not."""
    server, dynamo = name.removeprefix(DYNAMO), name.startswith(DYNAMO)
    values = dict(zip(PARAMETERS, np.exp(logs), strict=True)) | FRONT_END
    values["delivery_ms"] += values.pop("dynamo_ms") * dynamo
    rounded = {key: float(f"{value:.4g}") for key, value in values.items()}
    return ServerSoftware(bands=NO_BANDS, prompts_alone=server in PROMPTS_ALONE,
                          memory_part=PARTS.get(server, MEMORY_PART),
                          scheduled_ahead=server in AHEAD and not dynamo, **rounded)


def _write(path: Path, tables: Tables, rows: list[Row], errors: Floats, given: Path) -> None:
    """Corrections fitted to all rows, with the bands of the errors on rows left out."""
    digest = hashlib.sha256(given.read_bytes()).hexdigest()[:16]
    source = (f"fitted to servers of ai-dynamo/aiconfigurator (rows {digest}), vllm to llm-inferno/model-trainer too "
              "(Apache-2.0); bands of rows left out by model and system, degree, shape")
    judged = np.array([row.load is None for row in rows])
    places = [(kind, np.flatnonzero(out & judged)) for kind, out in _folds(rows)]
    parts = np.split(errors, np.cumsum([len(at) for _, at in places])[:-1])
    folds = [Fold(kind, at, part) for (kind, at), part in zip(places, parts, strict=True)]
    others, own = (_bands(rows, [fold for fold in folds if (fold.kind == UNSEEN) == unseen], source)
                   for unseen in (True, False))
    found = {}
    for key, one in _fit_all(tables, rows).items():
        server, *known = key.split(" ")
        found[key] = one.model_copy(update={"bands": (own if known else others)[server.removeprefix(DYNAMO)]})
    content = {name: one.model_dump(mode="json") for name, one in found.items()}
    head = ("# What servers add to operator times: benchmarks/silicon_error.py TABLES ROWS.csv --fit --write F,\n"
            f"# seed {SEED}, numpy {version('numpy')}.\n")
    path.write_text(head + yaml.safe_dump(content, sort_keys=False, width=120))


def _table(path: Path, rows: list[Row], errors: Floats) -> None:
    """Predicted and measured, a line per row."""
    if len(errors) != len(rows):
        sys.exit("--out: is for a prediction per row; leave --fit out")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "gpu", "gpus", "precision", "server", "isl", "osl", "concurrency", "ttft_ms",
                         "tpot_ms", "predicted_ttft_ms", "predicted_tpot_ms"])
        for row, error in zip(rows, errors, strict=True):
            times = [*np.exp(row.measured), *np.exp(np.array(row.measured) + error)]
            writer.writerow([row.model, row.gpu, row.gpus, row.precision, row.server, row.isl, row.osl, row.concurrency,
                             *(f"{one:.4g}" for one in times)])


def _conclude(name: str, groups: list[tuple[str, ...]], errors: Floats, bands: list[TokenBands], folder: str | None
              ) -> None:
    """Medians by group and over all, the part within bands, and their widths."""
    size, lines = 100 * np.abs(np.expm1(errors)), []
    inside = np.array([_within(*pair) for pair in zip(errors, bands, strict=True)])
    wide = np.array([(one.ttft.high - one.ttft.low, one.tpot.high - one.tpot.low) for one in bands])
    for group in [*sorted({one for several in groups for one in several}), "all"]:
        at = np.array([group in (*several, "all") for several in groups])
        kept, (ttft_width, tpot_width) = 100 * inside[at].mean(axis=0), wide[at].mean(axis=0)
        lines.append((group, int(at.sum()), *np.median(size[at], axis=0).tolist(), float(kept.mean()), *kept.tolist(),
                      float(ttft_width), float(tpot_width)))
    for group, many, ttft, tpot, kept, _, _, *widths in lines:
        print(f"{group:50} rows {many} ttft_median {ttft:.1f} tpot_median {tpot:.1f} inside90 {kept:.1f} "
              f"width {np.mean(widths):.2f}")
    columns = ("group", "rows", "ttft_median", "tpot_median", "inside90", "ttft_inside", "tpot_inside", "ttft_width",
               "tpot_width")
    results.write(folder, name, columns, lines, seeds=(SEED,))
    _, many, ttft, tpot, kept, _, _, *widths = lines[-1]
    print(f"rows {many} ttft_median {ttft:.1f} tpot_median {tpot:.1f} inside90 {kept:.1f} width {np.mean(widths):.2f}")


if __name__ == "__main__":
    main()
