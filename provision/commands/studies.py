"""``provision train`` and ``veltair``: train a policy of InSS's scheduler, and run VELTAIR's study."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from provision import InputError, draw, read
from provision.commands.verb import Writing
from provision.draw.figures import check_picture, write_figure
from provision.draw.output import Rows, rows_of
from provision.draw.progress import counting
from provision.heuristics.inss.inss import METHODS, regressed_ms
from provision.heuristics.inss.policy import packed
from provision.heuristics.inss.system import System
from provision.heuristics.veltair.profile import measured_networks
from provision.instances.files.files import check_writable, write_bytes, write_text
from provision.models.base.arguments import local, operand, written
from provision.models.base.fields import Count, Flag, PositiveCount
from provision.models.cpu.cpu import CPUS
from provision.models.cpu.layers import BERT_TOKENS, networks
from provision.studies.layers import read_layer_times
from provision.studies.study import FIGURES, Study, differences, searches, shapes
from provision.sweeps.table import as_csv
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

    def refuse(self) -> None:
        """Refuse what cannot work, before any work."""
        for package in ("torch", "gymnasium"):
            if find_spec(package) is None:
                raise InputError(f"train needs {package}, which is not installed; pip install 'gpu-provision[rl]'")
        super().refuse()
        check_writable(f"{self.out}.state", self.overwrites)

    def run(self) -> int:
        from provision.training.train import Training, load

        instance, state = read(self.instance), f"{self.out}.state"
        METHODS[0].check(instance)
        system = System(instance)
        if self.alone:
            system.running_ms = regressed_ms(self.alone, system)
        settings = SETTINGS[self.settings]._replace(spread=self.spread)
        training = load(state, system, self.seed, settings) if self.resume else Training(system, self.seed, settings)
        with suppress(KeyboardInterrupt):
            self._train(training, state)
        if not training.episodes:
            raise KeyboardInterrupt
        write_bytes(self.out, packed(training.policy), self.overwrites)
        if self.png:
            figure = draw.fit_plot.training_figure(training.history, f"{instance.name}, seed {self.seed}")
            write_figure(figure, self.png, self.overwrites)
        reward, late, throughput_rps = training.history[-LATEST:].mean(axis=0).tolist()
        content = {
            "instance": instance.name, "episodes": training.episodes, "seed": self.seed, "reward": reward, "late": late,
            "throughput_rps": throughput_rps, "best_reward": training.best[0], "policy_file": self.out,
            "png_file": self.png,
        }
        text = (f"{training.episodes} episodes; in the last {LATEST} reward {reward:.4g} a step, {late:.2%} of the "
                f"tasks late, {throughput_rps:.6g} requests/s as it explored; the policy has reward "
                f"{training.best[0]:.4g}")
        return self.answer(content, [text, *self.files_told], 0 if training.episodes >= self.episodes else 1)

    def _train(self, training: Training, state: str) -> None:
        """Run the remaining episodes, and save a checkpoint from time to time."""
        from provision.training.train import save

        with counting(f"training on {training.system.instance.name}", self.episodes) as advance:
            advance(training.episodes)
            for rounds in count(1):
                before = training.episodes
                if before >= self.episodes:
                    return
                training.run()
                advance(training.episodes - before)
                if rounds % BETWEEN_CHECKPOINTS == 0 or training.episodes >= self.episodes:
                    save(training, state)


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
        folder = Path(self.out or "")
        for name, parts in figures.items() if self.out else ():
            check_picture(folder / f"figure-{name}.png", self.force)
            for part in parts:
                check_writable(folder / f"figure-{part}.csv", self.force)
        times, tokens = read_layer_times(self.measured) if self.measured else None, self.bert_tokens
        with counting("searching for capacities", searches(figures)) as advance:
            served = measured_networks(times, tokens) if times else networks(tokens)
            study = Study(self.queries, self.seed, advance, served, CPUS[self.cpu])
            found = {part: getattr(study, f"figure_{part}")() for parts in figures.values() for part in parts}
        shown = {part: [{name: value for name, value in row.items() if name not in HIDDEN} for row in rows]
                 for part, rows in found.items()}
        files: list[str] = []
        if self.out:
            from provision.studies.drawing import draw_veltair  # loads matplotlib

            for part, rows in shown.items():
                write_text(folder / f"figure-{part}.csv", as_csv(rows), self.force)
                files.append(str(folder / f"figure-{part}.csv"))
            files += map(str, draw_veltair(found, folder, self.force))
        judged, why = shapes(found), differences(figures)
        content = {f"figure_{part}": rows for part, rows in found.items()} | {
            "shapes": [shape._asdict() for shape in judged], "differences": why, "queries": self.queries,
            "seed": self.seed, "cpu": self.cpu, "bert_tokens": tokens, "measured": self.measured, "files": files}
        as_measured = () if times is None else (
            f"how efficient each layer is: as measured on {times.machine.cpu} with PyTorch {times.machine.torch}",)
        text = ["modelled, not measured: no code ran on the paper's testbed for these numbers", *as_measured]
        tables: list[str | Rows] = []
        for part, rows in shown.items():
            tables += [f"\nFigure {part}", rows_of(rows)]
        compared = Rows(("figure", "shape", "comes out", "ours", "paper"), [
            [one.figure, one.claim, "yes" if one.holds else "NO", one.ours, one.paper] for one in judged])
        return self.answer(
            content, [*text, *tables, "\nThe paper's shapes", compared, "Why numbers differ:",
                      *(f"- {line}" for line in why), *(f"written to {path}" for path in files)],
            int(not all(one.holds for one in judged)))
