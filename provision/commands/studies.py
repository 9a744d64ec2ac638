"""``provision train`` and ``veltair``: train a policy of InSS's scheduler for the system of an instance, and run
VELTAIR's study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from provision import draw
from provision.commands.verb import Writing
from provision.draw.figures import check_picture, write_figure
from provision.draw.output import Rows, rows_of
from provision.draw.progress import counting
from provision.heuristics.inss.inss import METHODS, regressed_ms
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.heuristics.veltair.fit import measured_networks
from provision.instances.files.files import check_writable, write_bytes, write_text
from provision.instances.read import read
from provision.models.base.arguments import local, operand, written
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, PositiveCount
from provision.models.cpu.cpu import CPUS
from provision.models.cpu.networks import BERT_TOKENS, networks
from provision.models.cpu.times import LayerTimes
from provision.studies.veltair.layer_times import read_layer_times
from provision.studies.veltair.shapes import Shape, differences, shapes
from provision.studies.veltair.study import FIGURES, Study, searches
from provision.sweeps.table import TableRow, as_csv
from provision.training.settings import SETTINGS

EPISODES = 1500
"""The number of episodes in the paper's training (Table 1)."""
BETWEEN_CHECKPOINTS = 5
"""The number of rounds of episodes between two checkpoints."""
LATEST = 16
"""The number of last episodes that are summarised at the end."""


if TYPE_CHECKING:
    from provision.training.train import Training


class Train(Writing):
    instance: str = operand("INSTANCE", "trained for its rates and those within --spread")
    out: str = written("write the policy here, checkpoints to F.state", default=...)
    episodes: Annotated[PositiveCount, Field(le=10**6)] = local(EPISODES, "N", "in all")
    seed: Count = local(0, "N", "of all random numbers")
    settings: str = local("stable", None, "as chosen here (default), or the public program's", choices=(*SETTINGS,))
    spread: Annotated[float, Field(ge=0, le=1)] = local(0.5, "F", "rates of 1-F to 1+F times the instance's")
    alone: str | None = local(None, "F", "running times by regression on this table of models alone")
    resume: Flag = local(False, None, "go on from F.state, up to N episodes in all")
    png: str | None = written("draw how it converges (.png or .svg)", what="picture")

    @property
    def overwrites(self) -> bool:
        """Whether files that exist are written anew, as when training goes on."""
        return self.force or self.resume

    def run(self) -> int:
        system = _system(self)
        training = _training(system, self)
        with suppress(KeyboardInterrupt):
            _train(training, self)
        if not training.episodes:
            raise KeyboardInterrupt
        write_bytes(self.out, packed(training.policy), self.overwrites)
        if self.png:
            title = f"{system.instance.name}, seed {self.seed}"
            write_figure(draw.fit_plot.training_figure(training.history, title), self.png, self.overwrites)
        return _told_training(training, self)


def _system(options: Train) -> System:
    """The system for which to train; options that cannot work are refused before any work."""
    for package in ("torch", "gymnasium"):
        if find_spec(package) is None:
            raise InputError(f"train needs {package}, which is not installed; pip install 'gpu-provision[rl]'")
    check_writable(f"{options.out}.state", options.overwrites)
    instance = read(options.instance)
    METHODS[0].check(instance)
    system = System(instance)
    if options.alone:
        system.running_ms = regressed_ms(options.alone, system)
    return system


def _training(system: System, options: Train) -> Training:
    """A new Training, or the Training in the checkpoint if the options ask to resume."""
    from provision.training.train import Training, load

    settings = SETTINGS[options.settings]._replace(spread=options.spread)
    if options.resume:
        return load(f"{options.out}.state", system, options.seed, settings)
    return Training(system, options.seed, settings)


def _train(training: Training, options: Train) -> None:
    """Run the remaining episodes, and save a checkpoint from time to time."""
    from provision.training.train import save

    with counting(f"training on {training.system.instance.name}", options.episodes) as advance:
        advance(training.episodes)
        rounds = 0
        while training.episodes < options.episodes:
            before = training.episodes
            training.run()
            rounds += 1
            advance(training.episodes - before)
            if rounds % BETWEEN_CHECKPOINTS == 0 or training.episodes >= options.episodes:
                save(training, f"{options.out}.state")


def _told_training(training: Training, options: Train) -> int:
    """Print a summary of the last episodes; returns the exit code."""
    reward, late, throughput_rps = training.history[-LATEST:].mean(axis=0).tolist()
    content = {
        "instance": training.system.instance.name, "episodes": training.episodes, "seed": options.seed,
        "reward": reward, "late": late, "throughput_rps": throughput_rps, "best_reward": training.best[0],
        "policy_file": options.out, "png_file": options.png,
    }
    text = (f"{training.episodes} episodes; in the last {LATEST} reward {reward:.4g} a step, {late:.2%} of the tasks "
            f"late, {throughput_rps:.6g} requests/s as it explored; the policy has reward {training.best[0]:.4g}")
    return options.answer(content, [text, *options.files_told], 0 if training.episodes >= options.episodes else 1)


HIDDEN = ("cut",)
"""The columns that only JSON has."""


class Veltair(Writing):
    more_help: ClassVar[str] = "; exit 1 when a shape does not come out."
    figure: str = local("all", None, "which", choices=(*FIGURES, "all"))
    queries: Annotated[int, Field(ge=100)] = local(2000, "N", "queries a run, enough to tell 95 % of them")
    seed: Count = local(0, "N", "of the arrivals")
    cpu: str = local("published", None, "published: fitted to VELTAIR's layer times (default); calibrated: to its "
                                        "gains", choices=(*CPUS,))
    bert_tokens: PositiveCount = local(
        BERT_TOKENS, "N", f"length of bert-large's queries (default: {BERT_TOKENS}, as in VELTAIR's program)")
    measured: str | None = local(None, "F", "layers as efficient as measured: a file of profile-layers or a shipped "
                                            "name")
    out: str | None = local(None, "DIR", "write the tables (.csv) and pictures (.png) here")

    def run(self) -> int:
        figures = FIGURES if self.figure == "all" else {self.figure: FIGURES[self.figure]}
        _check(self, figures)
        times = read_layer_times(self.measured) if self.measured else None
        with counting("searching for capacities", searches(figures)) as advance:
            tokens = self.bert_tokens
            served = measured_networks(times, tokens) if times else networks(tokens)
            study = Study(self.queries, self.seed, advance, served, CPUS[self.cpu])
            found = {part: getattr(study, f"figure_{part}")() for parts in figures.values() for part in parts}
        judged, why = shapes(found), differences(figures)
        files = _write(found, Path(self.out), self.force) if self.out else []
        content = {f"figure_{part}": rows for part, rows in found.items()} | {
            "shapes": [shape._asdict() for shape in judged], "differences": why, "queries": self.queries,
            "seed": self.seed, "cpu": self.cpu, "bert_tokens": self.bert_tokens, "measured": self.measured,
            "files": files}
        return self.answer(content, _told(times, found, judged, why, files), int(not all(one.holds for one in judged)))


def _check(options: Veltair, figures: Mapping[str, Sequence[str]]) -> None:
    """Refuse options that cannot work, before any work."""
    if options.out:
        for name, parts in figures.items():
            check_picture(Path(options.out) / f"figure-{name}.png", options.force)
            for part in parts:
                check_writable(Path(options.out) / f"figure-{part}.csv", options.force)


def _write(found: Mapping[str, Sequence[TableRow]], folder: Path, force: bool) -> list[str]:
    """Write tables and pictures; returns their paths."""
    from provision.studies.veltair.drawing import draw_veltair  # loads matplotlib

    for part, rows in found.items():
        write_text(folder / f"figure-{part}.csv", as_csv(_shown(rows)), force)
    tables = [folder / f"figure-{part}.csv" for part in found]
    return [str(path) for path in (*tables, *draw_veltair(found, folder, force))]


def _shown(rows: Sequence[TableRow]) -> list[TableRow]:
    return [{name: value for name, value in row.items() if name not in HIDDEN} for row in rows]


def _told(times: LayerTimes | None, found: Mapping[str, Sequence[TableRow]], judged: Sequence[Shape],
          why: Sequence[str], files: Sequence[str]) -> Iterator[str | Rows]:
    yield "modelled, not measured: no code ran on the paper's testbed for these numbers"
    if times:
        yield f"how efficient each layer is: as measured on {times.machine.cpu} with PyTorch {times.machine.torch}"
    for part, rows in found.items():
        yield from (f"\nFigure {part}", rows_of(_shown(rows)))
    yield "\nThe paper's shapes"
    yield Rows(("figure", "shape", "comes out", "ours", "paper"), [
        [shape.figure, shape.claim, "yes" if shape.holds else "NO", shape.ours, shape.paper] for shape in judged
    ])
    yield from ("Why numbers differ:", *(f"- {text}" for text in why), *(f"written to {path}" for path in files))
