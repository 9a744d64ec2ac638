"""List prices of cloud GPUs: a shipped table with the source and the date of every price."""

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Positive, Record, Text
from provision.models.base.register import one_of
from provision.models.hardware.gpu import gpu_type, split

Tier = Literal["on_demand", "reserved", "spot"]
ON_DEMAND: Tier = "on_demand"


class ListPrice(Record):
    """A provider's price of one GPU per hour in US dollars: the machine's price divided by the number of its GPUs.

    ``machine`` is the rented machine type, ``as_of`` the date on which ``source`` showed the price. ``reclaimed`` is
    the fraction of such spot machines that the provider took back in the month before; empty if it is not published.
    """

    gpu: Name
    provider: Name
    tier: Tier
    per_hour: Positive
    machine: Text
    as_of: Text
    source: Text
    reclaimed: str = ""


@cache
def all_list_prices() -> tuple[ListPrice, ...]:
    """All rows of the shipped table, in the order of its file."""
    content = yaml.safe_load((files("provision.models.hardware") / "prices.yaml").read_text())
    rows = (dict(zip(content["columns"], row, strict=False)) for row in content["prices"])
    return tuple(ListPrice.model_validate(row | {"source": content["sources"][row["source"]]}) for row in rows)


def list_prices(gpu: str) -> list[ListPrice]:
    """The list prices of a GPU type; the price of a node is the price of all of its GPUs together."""
    many, kind = split(gpu)
    found = [price for price in all_list_prices() if price.gpu == kind]
    return [price.model_copy(update={"gpu": gpu, "per_hour": many * price.per_hour}) for price in found]


def list_price(gpu: str, name: object) -> ListPrice:
    """The list price of a GPU type that an instance names.

    Parameters
    ----------
    gpu
        The name of the GPU type.
    name
        ``PROVIDER`` for the provider's on-demand price, or ``PROVIDER.TIER``.

    Raises
    ------
    InputError
        If the table has no such price; the message lists the prices of this GPU type.
    """
    there = {f"{price.provider}.{price.tier}": price for price in list_prices(gpu_type(gpu).name)}
    wanted = f"{name}" if "." in f"{name}" else f"{name}.{ON_DEMAND}"
    if wanted not in there:
        known = one_of(wanted, there) if there else "the shipped table has none for it"
        raise InputError(f"price: no list price {wanted!r} of {gpu}; {known}, or write price_per_hour")
    return there[wanted]
