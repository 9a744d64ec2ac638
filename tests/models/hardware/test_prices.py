"""List prices: every one has a source and a day, and fleets name them."""

import datetime

import pytest

from provision.instances.files.files import validate
from provision.instances.schemas.write import schema
from provision.models.base.errors import InputError
from provision.models.hardware.gpu import gpu_types
from provision.models.hardware.prices import all_list_prices, list_price, list_prices
from provision.models.problem.workload import FleetEntry


def test_every_price_has_a_source_and_a_day():
    prices = all_list_prices()
    assert len({(price.gpu, price.provider, price.tier) for price in prices}) == len(prices) > 10
    for price in prices:
        assert price.gpu in gpu_types()
        assert datetime.date.fromisoformat(price.as_of) <= datetime.date(2026, 12, 31)
        assert "http" in price.source or "github.com" in price.source
        assert not price.reclaimed or price.tier == "spot"
    assert {"aws", "azure", "gcp"} <= {price.provider for price in prices} and any(price.reclaimed for price in prices)


@pytest.mark.parametrize("price", all_list_prices(), ids=lambda price: f"{price.gpu}-{price.provider}-{price.tier}")
def test_fleets_name_prices(price):
    entry = validate(FleetEntry, {"gpu": price.gpu, "price": f"{price.provider}.{price.tier}", "count": 3}, "x")
    assert (entry.price_per_hour, entry.count) == (price.per_hour, 3)
    assert entry.tier == f"{price.provider}.{price.tier}"
    assert FleetEntry.model_validate(entry.model_dump()) == entry


def test_a_provider_alone_means_on_demand_and_own_tier_names_stay():
    entry = FleetEntry.model_validate({"gpu": "h100-80gb", "price": "aws", "tier": "mine"})
    assert (entry.tier, entry.price_per_hour) == ("mine", list_price("h100-80gb", "aws.on_demand").per_hour)


@pytest.mark.parametrize(("given", "words"), [
    ({"price": "awz"}, "use one of aws.on_demand, aws.reserved"), ({"price": "awz"}, "did you mean 'aws.on_demand'"),
    ({"price": "aws.spot"}, "use one of aws.on_demand"), ({"price": "aws", "price_per_hour": 1.0}, "keep one"),
    ({"price": 3}, "use one of"), ({"gpu": "rtx2060", "price": "aws"}, "the shipped table has none for it"),
    ({"gpu": "h10", "price": "aws"}, "unknown GPU type 'h10'"),
])
def test_one_line_says_what_there_is(given, words):
    with pytest.raises(InputError, match=words) as refused:
        validate(FleetEntry, {"gpu": "h100-80gb"} | given, "x")
    assert len(refused.value.lines) == 1


def test_types_without_prices_and_the_schema():
    assert list_prices("a30") == []
    assert "price" in schema("instance")["$defs"]["FleetEntry"]["properties"]
