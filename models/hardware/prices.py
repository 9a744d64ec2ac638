"""List prices of cloud GPUs: a shipped table, with where every price comes from and of which day it is."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

from provision.models.base.errors import InputError
from provision.models.base.fields import Name, Positive, Record, Text
from provision.models.base.spelling import did_you_mean
from provision.models.hardware.gpu import gpu_type
from provision.models.hardware.node import split

Tier = Literal["on_demand", "reserved", "spot"]
ON_DEMAND: Tier = "on_demand"


class ListPrice(Record):
    """What a provider asks for a GPU per hour in US dollars, its share of the machine included.

    ``machine`` is what is rented, ``as_of`` the day on which the price stood at ``source``, ``reclaimed`` what part of
    such spot machines was taken back in the month before, empty where nobody tells.
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
    """The shipped table, as it stands in its file."""
    content = yaml.safe_load((files("provision.models.hardware") / "prices.yaml").read_text())
    rows = (dict(zip(content["columns"], row, strict=False)) for row in content["prices"])
    return tuple(ListPrice.model_validate(row | {"source": content["sources"][row["source"]]}) for row in rows)


def list_prices(gpu: str) -> list[ListPrice]:
    """The list prices of a GPU type; a node costs what its GPUs do."""
    many, kind = split(gpu)
    found = [price for price in all_list_prices() if price.gpu == kind]
    return [price.model_copy(update={"gpu": gpu, "per_hour": many * price.per_hour}) for price in found]


def list_price(gpu: str, name: object) -> ListPrice:
    """The list price that a name means.

    Parameters
    ----------
    gpu
        Name of the GPU type.
    name
        A provider, for its price on demand, or ``PROVIDER.TIER``.

    Raises
    ------
    InputError
        When the table has none; the message lists those that it has for this GPU type.
    """
    there = {f"{price.provider}.{price.tier}": price for price in list_prices(gpu_type(gpu).name)}
    wanted = f"{name}" if "." in f"{name}" else f"{name}.{ON_DEMAND}"
    if wanted not in there:
        known = f"use one of {', '.join(there)}" if there else "the shipped table has none for it"
        raise InputError(
            f"price: no list price {wanted!r} of {gpu}; {known}, or write price_per_hour{did_you_mean(wanted, there)}"
        )
    return there[wanted]
