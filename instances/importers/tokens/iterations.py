"""Imports timed iterations of language models, to which performance data is fitted. Times are in ms.

Sources: Splitwise's table (ISCA 2024), models on A100 and H100; MuxServe's profile (ICML 2024), LLaMA models on A100s,
nested by model, number of GPUs, percent of the SMs, batch size and sequence length, where -1 means that memory ran out.
The profile has no licence, so it does not ship; the user has to supply a copy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provision.instances.files.csv_cells import number, numbered_rows, text, whole
from provision.instances.importers.importer import Imported, Importer, poor_fit
from provision.instances.importers.tokens.server import OfServer, read_json, written_by
from provision.models.base.arguments import local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, NonNegative, Positive, PositiveCount, Record
from provision.models.fitting.operators.costs import TimedIteration

TIMES = ("prefill", "decoding")


def read_muxserve(path: str | Path, model: str, gpus: int, sm_percent: int) -> list[TimedIteration]:
    """Read the timed iterations of a model on ``gpus`` GPUs with ``sm_percent`` of their SMs. Raises InputError if the
    file cannot be read or has no such rows, or a time is not a number.
    """
    found = read_json(path)
    for key, what in ((model, "model"), (f"{gpus}", "number of GPUs"), (f"{sm_percent}", "percentage of SMs")):
        if not isinstance(found, dict) or key not in found:
            known = ", ".join(map(str, found)) if isinstance(found, dict) else "nothing"
            raise InputError(f"{path}: no {what} {key!r}; there is {known}")
        found = found[key]
    with written_by("MuxServe", f"{path}: {model}"):
        return [row for batch, lengths in found.items() for length, times in lengths.items()
                for row in _rows(int(batch), int(length), times)]


def _rows(batch: int, length: int, times: dict[str, Any]) -> list[TimedIteration]:
    prefill_ms, decode_ms = (float(times[name]) for name in TIMES)
    rows = [TimedIteration(batch, 0.0, length, prefill_ms), TimedIteration(batch, float(length), 0, decode_ms)]
    return [one for one in rows if one.time_ms > 0]


COLUMNS = (
    "model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time",
    "e2e_time", "average_power", "peak_power",
)  # fmt: skip


class IterationTimes(Record):
    """One row: a batch of prompts that was computed at once and then decoded. Power is a fraction of the GPUs' limit.
    """

    model: Name
    hardware: Name
    tensor_parallel: PositiveCount
    prompt_tokens: PositiveCount
    batch: PositiveCount
    output_tokens: PositiveCount
    prompt_ms: Positive
    token_ms: Positive
    e2e_ms: Positive
    average_power: NonNegative
    peak_power: NonNegative


def read_splitwise(path: str | Path) -> list[IterationTimes]:
    """Read the rows of the table. Raises InputError if the file cannot be read, a column is missing, or a cell is not a
    positive number.
    """
    rows = []
    for line, row in numbered_rows(path, COLUMNS):
        counts = [whole(path, line, row, column) for column in COLUMNS[2:6]]
        measures = [number(path, line, row, column) for column in COLUMNS[6:]]
        if min(*counts, *measures[:3]) <= 0:
            raise InputError(f"{path}:{line}: sizes and times must be positive; correct the row or leave it out")
        names = [text(path, line, row, column) for column in COLUMNS[:2]]
        rows.append(IterationTimes(**dict(zip(IterationTimes.model_fields, [*names, *counts, *measures], strict=True))))
    return rows


def timed_iterations(rows: list[IterationTimes], model: str, hardware: str, tensor_parallel: int
                     ) -> list[TimedIteration]:
    """Return the iterations of a model on some hardware: every row gives one of its prompts and one halfway through the
    answers. Raises InputError if no row is of this model and hardware; the message tells which there are.
    """
    asked = (model, hardware, tensor_parallel)
    found = [one for one in rows if (one.model, one.hardware, one.tensor_parallel) == asked]
    if not found:
        known = sorted({(one.model, one.hardware, one.tensor_parallel) for one in rows})
        raise InputError(f"no rows of {model} on {hardware} with tensor parallelism {tensor_parallel}; there are "
                         + ", ".join(f"{name} on {gpu} x {many}" for name, gpu, many in known))
    prompts = [TimedIteration(one.batch, 0.0, one.prompt_tokens, one.prompt_ms) for one in found]
    return prompts + [TimedIteration(one.batch, one.prompt_tokens + one.output_tokens / 2, 0, one.token_ms)
                      for one in found]


class Rows(OfServer):
    """Base of files with rows of several models."""

    rows_of: str | None = local(None, "NAME", "model whose rows (default: --model)")
    tensor_parallel: PositiveCount = local(1, "N", "whose rows; --gpu and --profile name the group that they are of")

    @property
    def asked(self) -> str:
        """The model whose rows are read."""
        return self.rows_of or self.model

    def fitted(self, rows: Sequence[TimedIteration], source: str) -> Imported:
        """Performance data that is fitted to timed iterations."""
        from provision.instances.importers.tokens.performance import performance_of
        from provision.models.fitting.operators.costs import fit_iterations

        fit = fit_iterations(rows)
        return Imported(performance_of(fit.costs, self.measured(), source), (
            f"{len(rows)} timed iterations, median errors on these same rows: prompts {fit.prompt_error:.1%}, decodes "
            f"{fit.decode_error:.1%}",
            "the times of a server's front end are not in such tables, and 0 here",
        ), tuple(f"warning: {line}" for line in poor_fit(max(fit.prompt_error, fit.decode_error), "the fit")))


class Splitwise(Rows):
    """Splitwise's table."""

    path: str = operand("CSV", "the file to read")
    hardware: str = local(..., "NAME", "whose rows (h100-80gb, ...)")

    def read(self) -> Imported:
        """Fit the rows."""
        rows = timed_iterations(read_splitwise(self.path), self.asked, self.hardware, self.tensor_parallel)
        return self.fitted(rows, f"fitted to Splitwise's rows of {self.asked} on {self.hardware} x "
                                 f"{self.tensor_parallel}")


class MuxServe(Rows):
    """MuxServe's profile."""

    path: str = operand("JSON", "the file to read")
    sm_percent: PositiveCount = local(100, "P", "whose rows")

    def read(self) -> Imported:
        """Fit the rows."""
        rows = read_muxserve(self.path, self.asked, self.tensor_parallel, self.sm_percent)
        return self.fitted(rows, f"fitted to MuxServe's profile of {self.asked} on {self.tensor_parallel} GPUs, "
                                 f"{self.sm_percent} % of the SMs")


SPLITWISE = Importer("Splitwise's timed iterations, as performance data", Splitwise)
MUXSERVE = Importer("MuxServe's profile (your copy), as performance data", MuxServe)
