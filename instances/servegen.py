"""ServeGen's clients (github.com/alibaba/ServeGen) as demand of image and language models that ship.

The trace is of language model services whose own performance data nobody published for slices, so that its clients only
lend their rates over time: the busiest become workloads, each of a shipped model in turn with that model's SLO.
"""

import csv
import io

from provision.instances.demand import from_cells
from provision.instances.files import read_text
from provision.instances.shipped import shipped
from provision.models.errors import InputError

COLUMNS = ("client", "window_start_s", "rate_rps")
PATTERN = "parvagpu-s5"
SOURCE = "rates of ServeGen's busiest clients, models and SLOs of {} in turn"


def import_servegen(path, clients=40, first=0, windows=144):
    """An instance and the Demand of its workloads.

    Parameters
    ----------
    path
        CSV with the columns ``client,window_start_s,rate_rps``.
    clients
        How many of the busiest clients to take.
    first, windows
        The windows to take, by number in time.

    Returns
    -------
    (Instance, Demand)
        The instance has every workload's mean rate.

    Raises
    ------
    InputError
        When the file has other columns or fewer windows or clients.
    """
    whole = _whole(path)
    if first < 0 or not 0 < windows <= len(whole.times_s) - first:
        raise InputError(f"{path}: has {len(whole.times_s)} windows; {windows} from number {first} on are not there")
    rates = whole.rates_rps[first : first + windows]
    busiest = (-rates.sum(axis=0)).argsort(kind="stable")[:clients]
    sending = int((rates.sum(axis=0) > 0).sum())
    if not 0 < clients <= sending:
        raise InputError(f"{path}: {sending} clients send requests in these windows, not {clients}")
    pattern = shipped(PATTERN)
    models = [pattern.workloads[at % len(pattern.workloads)] for at in range(clients)]
    names = [f"{model.name}-{whole.workloads[at].replace('/', '-')}" for model, at in zip(models, busiest, strict=True)]
    workloads = tuple(
        model.model_copy(update={"name": name, "rate_rps": float(rates[:, at].mean())})
        for model, name, at in zip(models, names, busiest, strict=True)
    )
    instance = pattern.replace(name=f"servegen-{clients}", source=SOURCE.format(PATTERN), workloads=workloads)
    times = whole.times_s[first : first + windows]
    cells = {
        (float(time_s), name): float(rates[row, at])
        for row, time_s in enumerate(times) for name, at in zip(names, busiest, strict=True)
    }
    return instance, from_cells(cells, path)


def _whole(path):
    """The file as Demand, clients for workloads."""
    reader, cells = csv.DictReader(io.StringIO(read_text(path))), {}
    for name in COLUMNS:
        if name not in (reader.fieldnames or ()):
            raise InputError(f"{path}:1: no column {name!r}; ServeGen's rates have {','.join(COLUMNS)}")
    for number, row in enumerate(reader, start=2):
        try:
            cells[float(row["window_start_s"]), row["client"]] = float(row["rate_rps"])
        except (TypeError, ValueError):
            raise InputError(f"{path}:{number}: expected numbers for window_start_s and rate_rps") from None
    return from_cells(cells, path)
