"""The questions from which ``provision init`` learns what a first instance has."""

import sys
from collections.abc import Callable

from provision.models.base.errors import InputError
from provision.models.base.spelling import did_you_mean
from provision.models.performance.catalogue import PerformanceFile
from provision.starting.instance_text import Served, proposed, serves, shipped_for, types_with_data
from provision.starting.tables import Tables

MOST_RPS = 1e9


def asked(question: str, proposed: str) -> str:
    """The user's answer to a question; the proposed answer if the user's is empty."""
    print(f"{question} [{proposed}]: ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip() if sys.stdin else ""
    return answer or proposed


def as_proposed(question: str, proposed: str) -> str:
    """The proposed answer, whatever the question."""
    return proposed


def listed(text: str) -> list[str]:
    """The names in a text with commas between them."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def performance_of(gpus: list[str], tables: Tables | None) -> list[PerformanceFile]:
    """The measurements in the folder; if there are none, the shipped data of the GPU types. Raises InputError if a GPU
    type has no data.
    """
    if tables and tables.measured:
        return [tables.measured]
    found = {gpu: shipped_for(gpu) for gpu in gpus}
    for gpu, data in found.items():
        if data is None:
            raise InputError(f"{gpu}: no data ships for it, and no table of measurements is in the folder; put a CSV "
                             f"with columns batch and latency_ms there, or use one of {', '.join(types_with_data())}")
    return [data for data in found.values() if data]


def workloads_of(
    models: str | None, data: list[PerformanceFile], tables: Tables | None, ask: Callable[[str, str], str]
) -> list[Served]:
    """The workloads: models with the rates and SLOs that the user gave or that were proposed."""
    of_model = {model: one for one in reversed(data) for model in one.models}
    peaks = dict(zip(tables.demand.workloads, tables.demand.rates_rps.max(axis=0).tolist(), strict=True)) if (
        tables and tables.demand) else {}
    measured = bool(tables and tables.measured)
    fit = [name for name, one in of_model.items() if measured or serves(one, name)]
    first = [name for name in peaks if name in of_model] or fit
    few = ",".join(first if measured or peaks else first[:1])
    names = listed(models or ask(f"models to serve ({', '.join(of_model)})", few))
    for name in names:
        if name not in of_model:
            raise InputError(f"model {name!r}: no data describes it; use one of {', '.join(of_model)}"
                             f"{did_you_mean(name, of_model)}")
    begun = [proposed(of_model[name], name) for name in names]
    return [
        Served(one.model, _number(ask, f"{one.model}: requests per second at the peak",
                                  peaks.get(one.model) or one.rate_rps),
               _number(ask, f"{one.model}: latency SLO in ms", one.slo_ms))
        for one in begun
    ]


def _number(ask: Callable[[str, str], str], question: str, proposed: float) -> float:
    """The positive number that answers a question."""
    answer = ask(question, f"{proposed:g}")
    try:
        value = float(answer)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_RPS:
        raise InputError(f"{question}: {answer!r} is no number above 0; begin again")
    return value
