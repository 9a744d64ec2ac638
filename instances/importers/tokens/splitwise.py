"""Reads Splitwise's table of measured iterations (ISCA 2024), with prompt and token times of large language models on
A100 and H100.
"""

from pathlib import Path

from provision.instances.files.csv_cells import number, numbered_rows, text, whole
from provision.models.base.errors import InputError
from provision.models.base.fields import Name, NonNegative, Positive, PositiveCount, Record
from provision.models.fitting.token_iterations import TimedIteration

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
    """Read the rows of the table.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, or a cell is not a positive number.
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
    answers.

    Raises
    ------
    InputError
        If no row is of this model and hardware; the message tells which there are.
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
