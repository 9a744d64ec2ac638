"""Reads MuxServe's profile (ICML 2024): times of prompts and decodes of LLaMA models on A100s, by share of the SMs.

The file is nested by model, number of GPUs, percent of the SMs, batch size and sequence length. Times are in ms; -1
means that memory ran out. The file has no licence, so it does not ship; the user has to supply a copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from provision.instances.importers.tokens.contents import read_json, written_by
from provision.models.base.errors import InputError
from provision.models.fitting.token_iterations import TimedIteration

TIMES = ("prefill", "decoding")


def read_muxserve(path: str | Path, model: str, gpus: int, sm_percent: int) -> list[TimedIteration]:
    """Read the timed iterations of a model on ``gpus`` GPUs with ``sm_percent`` of their SMs.

    Raises
    ------
    InputError
        If the file cannot be read or has no such rows, or a time is not a number.
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
