"""Imports ServeGen's clients (github.com/alibaba/ServeGen) as demand for image and language models that ship.

ServeGen's trace is of language model services, for which no performance data on MIG slices is published. Therefore only
the rates over time are used: each of the busiest clients becomes a workload, and the workloads get the shipped models
with their SLOs in turn.
"""

from provision.instances.files.demand import Demand, from_cells, read_demand, write_demand
from provision.instances.files.files import FilePath, check_writable
from provision.instances.importers.importer import Imported, Importer, Source
from provision.instances.read import shipped
from provision.models.base.arguments import FORCE, local, operand
from provision.models.base.errors import InputError
from provision.models.base.fields import Count, Flag, PositiveCount
from provision.models.problem.instance import Instance

COLUMNS = ("window_start_s", "client", "rate_rps")
PATTERN = "parvagpu-s5"
SOURCE = "rates of ServeGen's busiest clients, models and SLOs of {} in turn"


def import_servegen(path: FilePath, clients: int = 40, first: int = 0, windows: int = 144) -> tuple[Instance, Demand]:
    """Make an instance, and the Demand of its workloads.

    Parameters
    ----------
    path
        The CSV file with the columns ``window_start_s``, ``client`` and ``rate_rps``, in any order.
    clients
        How many of the busiest clients to take.
    first, windows
        Index of the first window to take, and the number of windows.

    Returns
    -------
    (Instance, Demand)
        In the instance every workload has its mean rate.

    Raises
    ------
    InputError
        If the file has other columns, or fewer windows or clients.
    """
    whole = read_demand(path, COLUMNS)
    if windows > len(whole.times_s) - first:
        raise InputError(f"{path}: has {len(whole.times_s)} windows; {windows} from number {first} on are not there")
    rates = whole.rates_rps[first : first + windows]
    busiest = (-rates.sum(axis=0)).argsort(kind="stable")[:clients]
    sending = int((rates.sum(axis=0) > 0).sum())
    if clients > sending:
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


class ServeGen(Source):
    """A table of ServeGen's clients."""

    path: str = operand("CSV", "the file to read")
    demand: str = local(..., "F", "write the rates over time here (.csv)")
    clients: PositiveCount = local(40, "N", "how many")
    first: Count = local(0, "N", "the first window")
    windows: PositiveCount = local(144, "N", "how many (default: 144, a day)")
    force: Flag = FORCE

    def read(self) -> Imported:
        """Read the table, and write the rates."""
        check_writable(self.demand, self.force)
        instance, demand = import_servegen(self.path, self.clients, self.first, self.windows)
        write_demand(demand, self.demand, self.force)
        return Imported(instance, (f"{instance.source}; demand written to {self.demand}",))


IMPORTER = Importer("rates of the busiest clients, as workloads of shipped models", ServeGen)
