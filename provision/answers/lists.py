"""Makes the rows of lists of instances, methods and GPU types."""

from __future__ import annotations

from provision.models.hardware.gpu import gpu_types
from provision.models.hardware.prices import ListPrice, list_prices
from provision.models.performance.catalogue import load_performance, shipped_performance
from provision.models.problem.instance import Instance
from provision.solving.methods import methods
from provision.sweeps.table import TableRow


def instance_row(instance: Instance) -> TableRow:
    """The row of an instance."""
    return {
        "name": instance.name,
        "workloads": len(instance.workloads),
        "fleet": ", ".join(entry.gpu for entry in instance.fleet),
        "objective": instance.objective,
        "source": instance.source,
    }


def method_rows() -> list[TableRow]:
    """The rows of all methods."""
    return [
        {
            "name": method.name,
            "exact": method.exact,
            "summary": method.summary,
            "features": sorted(method.features),
            "parameters": dict(method.parameters),
            "source": method.source,
        }
        for method in methods().values()
    ]


def gpu_rows() -> list[TableRow]:
    """The rows of all GPU types: hardware, shipped performance data, and providers with a list price."""
    shipped = [load_performance(name) for name in shipped_performance()]
    return [
        {
            "name": gpu.name,
            "product": gpu.product,
            "sms": gpu.sms,
            "memory_gib": gpu.memory_gib,
            "mig_profiles": [name for name, profile in gpu.profiles.items() if profile.variant == "plain"],
            "performance": [f"{data.name} ({len(data.models)} models)" for data in shipped if data.gpu == gpu.name],
            "prices": [_words(price) for price in list_prices(gpu.name)],
        }
        for gpu in gpu_types().values()
    ]


def _words(price: ListPrice) -> str:
    """A list price in words, with the fraction of machines of this tier that the provider takes back per month."""
    reclaimed = price.reclaimed and f" ({price.reclaimed} reclaimed a month)"
    return f"{price.provider}.{price.tier} {price.per_hour:g}{reclaimed}"
