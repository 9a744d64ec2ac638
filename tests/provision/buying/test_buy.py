"""What to buy: small cases against brute force, the accounts against the verifier, and bad input in one line."""

import itertools
import json
from datetime import date, timedelta
from math import inf

import numpy as np
import pytest

import provision
from provision.buying.market import Market
from provision.buying.purchase import End, _end
from provision.buying.search import Searching
from provision.cli import main
from provision.models.base.clock import Deadline
from provision.models.performance.measured_segments import MeasuredSegments
from tests.support.oracles.small_solver import solve as small

TYPES = ("l4", "t4")
POINTS = {"l4": {"m": [("whole", 4, 1, 100.0, 10.0)], "n": [("whole", 2, 1, 30.0, 10.0)]},
          "t4": {"m": [("whole", 2, 1, 40.0, 12.0)], "n": [("whole", 2, 1, 25.0, 12.0)]}}
PERF = [MeasuredSegments(version=1, name=f"made-{gpu}", kind="measured-segments", gpu=gpu,
                         models={model: {"points": points} for model, points in POINTS[gpu].items()}) for gpu in TYPES]
FLEET = [{"gpu": "l4", "price_per_hour": 0.8}, {"gpu": "t4", "price_per_hour": 0.5}]
RESERVE = [{"gpu": "l4", "years": 1, "price_per_month": 300.0}, {"gpu": "t4", "years": 1, "upfront": 1500.0}]


def shop(rates, fleet=FLEET, workloads=("a", "b"), **buying):
    """An instance with a period of a week for each row of rates."""
    rows = [{"start": f"{date(2026, 1, 5) + timedelta(weeks=at)} 00:00", "hours": 168.0,
             "rates": dict(zip(workloads, row, strict=True))} for at, row in enumerate(rates)]
    made = [{"name": name, "model": "mn"[at % 2], "slo_ms": 60.0, "rate_rps": 10.0}
            for at, name in enumerate(workloads)]
    return provision.Instance(
        version=2, name="shop", policy={"latency_budget": "half_slo"}, fleet=fleet, performance=PERF, workloads=made,
        buying={"zone": "UTC", "demand": rows} | buying)


def brute_force(instance, most=5):
    """The least cost of all purchases with at most so many GPUs of each type, by trying all."""
    market = Market(instance)
    vectors = list(itertools.product(range(most + 1), repeat=len(market.types)))

    def serves(rates, counts):
        if not sum(counts):
            return not rates.any()
        found = small(market.priced(rates, np.ones(len(counts)), np.array(counts, float)))
        assert found.exact
        return found.value is not None

    serving = [[one for one in vectors if serves(group.rates, one)] for group in market.groups()]
    best = inf
    assert all(one.first == 0 for one in market.terms)
    stated = [market.buying.reserve[one.entry].at_most for one in market.terms]
    limits = [range(1 + (most if one is None else one)) for one in stated]
    for reserved in itertools.product(*limits):
        have, cost = market.own.copy(), 0.0
        for many, term in zip(reserved, market.terms, strict=True):
            have[term.type] += many
            cost += many * term.cost
        if (have > market.quota).any():
            continue
        for group, several in zip(market.groups(), serving, strict=True):
            hourly = [sum(price(market, kind, max(0, need - have[kind])) for kind, need in enumerate(one))
                      for one in several if all(need <= market.quota[kind] for kind, need in enumerate(one))]
            cost += min(hourly, default=inf) * group.hours
        best = min(best, cost)
    return best + market.own_per_hour.sum() * market.hours


def price(market, kind, many):
    """The price per hour of so many on-demand GPUs of a type."""
    offers = sorted((one.price, one.most) for one in market.on_demand if one.type == kind)
    total = 0.0
    for each, most in offers:
        total += each * min(many, most)
        many -= min(many, most)
    return inf if many else total


DRAWS = [np.random.default_rng(seed) for seed in range(6)]


@pytest.mark.parametrize("draw", range(6))
def test_small_cases_cost_what_brute_force_finds(draw):
    random = DRAWS[draw]
    rates = random.uniform(5, 120, (int(random.integers(1, 4)), 2)).round(1)
    rates[0, draw % 2] *= draw % 3  # sometimes no traffic, which still needs a replica
    fleet = [FLEET[0], {**FLEET[1], "count": int(random.integers(0, 3))}]
    if draw % 2:
        fleet.append({"gpu": "t4", "price_per_hour": 0.2, "count": 1, "committed": True})
    quota = {"quota": {"l4": 4}} if draw % 3 == 0 else {}
    instance = shop(rates, fleet, reserve=[RESERVE[0], {**RESERVE[1], "at_most": 2}][: 1 + draw % 2], **quota)
    found = provision.buy(instance, 20.0, gap=0.0, growth=())
    assert found.cost == pytest.approx(brute_force(instance), rel=1e-6)
    assert found.bound <= found.cost * (1 + 1e-9)


def test_reservations_bind_all_periods_and_peaks_are_bought_on_demand():
    found = provision.buy(shop([[90], [90], [190]], workloads=("a",), reserve=RESERVE), 20.0, gap=0.0, growth=())
    assert found.status == "optimal"
    assert [(one.gpu, one.gpus) for one in found.reserved] == [("l4", 1)]
    assert [one.gpus.get("on demand") for one in found.periods] == [None, None, {"l4": 1}]
    assert found.cost == pytest.approx(3 * 168 * 300 * 12 / 8760 + 168 * 0.8)


@pytest.mark.parametrize("few_changes", [False, True])
def test_every_plan_holds_on_what_is_bought_and_costs_what_is_told(few_changes):
    spot = {"share": 0.5, "offers": [{"gpu": "l4", "price_per_hour": 0.3, "interruption_per_month": 0.2}]}
    fleet = [*FLEET, {"gpu": "t4", "price_per_hour": 0.1, "count": 2, "committed": True}]
    instance = shop([[150, 20], [300, 45], [310, 50], [90, 20]], fleet, reserve=RESERVE, spot=spot)
    found = provision.buy(instance, 20.0, growth=(), few_changes=few_changes)
    total = 0.0
    for period, rates in zip(found.periods, Market(instance).rates(), strict=True):
        bought, plan = found.plans[period.plan]
        report = provision.verify(bought, plan)
        assert report.ok
        assert [one.rate_rps for one in bought.workloads] == list(rates)
        total += report.cost_per_hour * period.hours
        assert sum(period.cost.values()) == pytest.approx(report.cost_per_hour * period.hours, rel=1e-6)
    assert total == pytest.approx(found.cost, rel=1e-6)
    assert sum(found.options.values()) == pytest.approx(found.per_month(found.cost))
    assert sum(sum(row[one] for one in found.options) for row in found.months) == pytest.approx(found.cost)


def test_a_plan_that_fails_at_lower_demand_gives_way_to_one_of_its_own(monkeypatch):
    monkeypatch.setattr("provision.buying.purchase.served", lambda market, plan, rates: plan.with_replicas(
        lambda one: one.model_copy(update={"rate_rps": one.rate_rps / 2})))
    found = provision.buy(shop([[100.0, 100.0], [90.0, 90.0]]), 12, growth=())
    assert len(found.plans) == 2 and all(provision.verify(*one).ok for one in found.plans)


def test_nodes_bound_what_is_bought_and_hold_every_plan():
    plain = shop([[100.0, 60.0], [200.0, 60.0]], FLEET[:1], reserve=RESERVE[:1])
    nodes = [{"name": zone, "gpu": plain.fleet[0].gpu, "gpus": 4, "zone": zone} for zone in ("east", "west")]
    rule = {"workload": "a", "over": "zone", "at_least": 2}
    found = provision.buy(plain.replace(places={"nodes": nodes, "spread": [rule]}), 20, growth=())
    assert all(provision.verify(*one).ok for one in found.plans)
    assert all({gpu.node for gpu in plan.gpus} == {"east", "west"} for _, plan in found.plans)
    assert found.cost >= provision.buy(plain, 12, growth=()).cost - 1e-6


def test_a_period_over_two_months_counts_in_both():
    found = provision.buy(shop([[90]] * 5, FLEET[:1], ("a",)), 20.0, growth=())  # 5 weeks from 5 January
    hours = {"2026-01": 27 * 24, "2026-02": 8 * 24}
    assert {one["month"]: one["on demand"] for one in found.months} == pytest.approx(
        {month: 0.8 * many for month, many in hours.items()})


def test_spot_gpus_carry_no_more_than_the_share():
    spot = {"share": 0.5, "shares": {"b": 0.0},
            "offers": [{"gpu": "l4", "price_per_hour": 0.1, "interruption_per_month": 0.5}]}
    found = provision.buy(shop([[400, 60]], FLEET[:1], spot=spot), 20.0, gap=0.0, growth=())
    [period] = found.periods
    assert period.gpus == {"on demand": {"l4": 4}, "spot": {"l4": 2}}  # a: 4 GPUs, half of them spot; b: 2, none
    assert found.spot.most_share == pytest.approx(0.5)
    assert found.spot.most_on_one == pytest.approx(0.25)
    assert found.spot.saves_per_month == pytest.approx(2 * 0.7 * 730)
    assert found.spot.interruptions_per_month == pytest.approx(2 * np.log(2))


def test_growth_costs_more_and_ends_at_the_quota():
    instance = shop([[90], [195]], FLEET[:1], ("a",), quota={"l4": 2})
    found = provision.buy(instance, 20.0, growth=(10.0, 2.0))
    two, ten = found.growth
    assert (two.short, two.cost_per_month) == (None, pytest.approx(found.per_month(found.cost)))
    assert (ten.short, ten.cost_per_month) == ("2026-01-12T00:00+00:00", None)
    assert [(one.what, one.start) for one in found.ends] == [("quota", None)]


def test_too_small_a_quota_is_told_with_its_first_day():
    found = provision.buy(shop([[90], [195], [295], [290]], FLEET[:1], ("a",), quota={"l4": 2}), 20.0)
    assert (found.status, found.cost) == ("infeasible", None)
    assert found.ends[0].start == "2026-01-19T00:00+00:00"


def test_what_is_owned_ends_on_a_day():
    fleet = [FLEET[0], {"gpu": "l4", "price_per_hour": 0.1, "count": 1, "committed": True}]
    found = provision.buy(shop([[90], [95], [120]], fleet, ("a",)), 20.0, growth=())
    assert [(one.what, one.start, one.proven) for one in found.ends] == [("owned", "2026-01-19T00:00+00:00", True)]


def test_one_year_terms_are_bought_anew():
    rows = {"start": "2026-01-05 00:00", "hours": 730.0, "count": 24, "per_year": 1.0}
    rates = ({"name": "a", "model": "m", "slo_ms": 60.0, "rate_rps": 90.0},)
    instance = shop([[90]], FLEET[:1], ("a",), reserve=RESERVE[:1]).replace(workloads=rates)
    instance = instance.replace(buying=instance.buying.model_dump() | {"demand": rows})
    found = provision.buy(instance, 20.0, growth=())
    assert [one.begins[:4] for one in found.reserved] == ["2026", "2027"]
    assert found.reserved[0].gpus < found.reserved[1].gpus


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(json.dumps(BASE))
    return BASE


BASE = {
    "version": 2, "name": "shop", "policy": {"latency_budget": "half_slo"}, "performance": ["parvagpu-a100"],
    "fleet": [{"gpu": "a100-80gb", "price_per_hour": 3.0},
              {"gpu": "a100-80gb", "price_per_hour": 1.0, "count": 2, "committed": True}],
    "workloads": [{"name": "search", "model": "bert", "slo_ms": 500, "rate_rps": 120}],
    "buying": {"zone": "Europe/Berlin", "demand": [{"start": "2026-03-28 00:00"}, {"start": "2026-03-29 00:00"},
                                                   {"start": "2026-03-30 00:00"}]},
}
ROW = {"start": "2026-03-28 00:00", "hours": 24.0}
BAD = [
    ({"demand": [ROW, {"start": "2026-03-29 06:00", "hours": 24.0}]}, "a gap of 5 h"),
    ({"demand": [ROW, {"start": "2026-03-28 20:00", "hours": 24.0}]}, "overlaps the period before by 4 h"),
    ({"demand": [{"start": f"2026-03-{day:02d}"} for day in (1, 2, 3, 5)]}, "2026-03-05: a gap of 24 h"),
    ({"zone": "Europe/Berln", "demand": [ROW]}, "there is no time zone 'Europe/Berln'"),
    ({"zone": None, "demand": [ROW]}, "names no time zone"),
    ({"demand": [ROW | {"start": "2026-03-29 02:30"}]}, "does not exist in Europe/Berlin"),
    ({"demand": [{"start": "soon", "hours": 1.0}]}, "'soon' is no date"),
    ({"demand": [{"start": "2026-03-28 00:00"}]}, "add hours"),
    ({"demand": [{**ROW, "rates": {"serch": 1.0}}]}, "did you mean 'search'?"),
    ({"reserve": [{"gpu": "a100-80gb", "years": 1, "price": 400.0}]}, "price: has no unit"),
    ({"reserve": [{"gpu": "a100-80gb", "years": 1}]}, "add upfront or price_per_month"),
    ({"reserve": [{"gpu": "l4", "years": 1, "upfront": 1.0}]}, "'l4' is not in the fleet"),
    ({"quota": {"a100-80gb": 1}}, "contradict the 2 that are committed"),
    ({"demand": None}, "states no demand over time"),
]


def test_no_proof_contradicts_a_plan_that_is_known():
    """Proofs of what periods cost beside committed GPUs, against the plans that serve as much or more."""
    instance = provision.Instance(**BASE | {"workloads": [
        {"name": "search", "model": "bert", "slo_ms": 500, "rate_rps": 240},
        {"name": "tags", "model": "resnet50", "slo_ms": 100, "rate_rps": 6400},
        {"name": "photos", "model": "densenet169", "slo_ms": 100, "rate_rps": 1800}], "buying": {
        "zone": "UTC", "demand": {"start": "2026-01-01", "hours": 730.0, "count": 6, "per_year": 0.5},
        "reserve": [{"gpu": "a100-80gb", "years": 1, "upfront": 4000.0, "price_per_month": 1300.0}]}})
    market = Market(instance)
    search = Searching(market, 0.001, 0)
    found = search.run(20)
    assert found.choice is not None and found.bound <= found.choice.cost * (1 + 1e-6)
    for many in (0.0, 2.0, 3.0):
        search._beside(found.groups, np.full((len(found.groups), 1), many), Deadline(10), 0.0)
    assert search.known.floors
    for floor, column in itertools.product(search.known.floors, search.known.columns):
        if (column.rates >= floor.rates).all():
            assert 3.0 * max(0.0, column.gpus[0] - floor.committed[0]) >= floor.least - 1e-6


@pytest.mark.parametrize(("changes", "told"), BAD, ids=[told for _, told in BAD])
def test_bad_input_is_one_line(file, tmp_path, capsys, changes, told):
    (tmp_path / "bad.yaml").write_text(json.dumps(file | {"buying": file["buying"] | changes}))
    assert main(["buy", "bad.yaml"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_what_is_not_counted_is_refused(file, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text(json.dumps(file | {"power": {"price_per_kwh": 0.3}}))
    assert main(["buy", "bad.yaml"]) == 2
    assert "power.price_per_kwh: buy counts no energy" in capsys.readouterr().err


def test_clocks_that_change_leave_no_gap(file):
    instance = provision.read("shop.yaml")
    assert [span.hours for span in instance.buying.spans()] == [24.0, 23.0, 23.0]


def test_the_command_line_writes_plans_that_verify_and_a_picture(file, tmp_path, capsys):
    rows = "2026-03-01 00:00,100\n2026-03-02 00:00,900\n2026-03-03 00:00,90\n"
    (tmp_path / "rates.csv").write_text("time,search\n" + rows)
    line = "buy shop.yaml --demand rates.csv --zone Asia/Tokyo --growth 5 --time-limit 20 --out plans --png p.png"
    assert main(line.split()) == 0
    told = capsys.readouterr().out
    assert "What is owned" in told
    assert "With 5 % more traffic" in told
    assert (tmp_path / "p.png").stat().st_size > 5000
    assert provision.read("plans/plan-000.yaml").workloads[0].rate_rps == 100
    for at in range(3):
        assert main(["verify", f"plans/plan-{at:03d}.yaml", f"plans/plan-{at:03d}.json"]) == 0
    line = line.replace("Asia/Tokyo", "Europe/Berlin").partition(" --out")[0] + " --json"
    capsys.readouterr()
    assert main(line.split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["start"] for one in found["periods"]] == [f"2026-03-0{day}T00:00+01:00" for day in (1, 2, 3)]
    assert found["cost"] == pytest.approx(sum(sum(one["cost"].values()) for one in found["periods"]))


@pytest.mark.parametrize(("text", "told"), [
    ("time,search\n2026-03-01,1\n2026-03-02,1\n2026-03-03,1\n2026-03-05,1\n", "a gap of 24 h"),
    ("time,serch\n2026-03-01,1\n2026-03-02,1\n", "there is no workload 'serch'"),
])
def test_bad_tables_are_one_line(file, tmp_path, capsys, text, told):
    (tmp_path / "rates.csv").write_text(text)
    assert main(["buy", "shop.yaml", "--demand", "rates.csv"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


def test_a_missing_table_is_named_once(file, capsys):
    assert main(["buy", "shop.yaml", "--demand", "nosuch.csv"]) == 2
    assert capsys.readouterr().err.count("nosuch.csv") == 1


def test_an_end_is_a_day_unless_periods_are_shorter():
    end = End("committed", "2026-11-01T04:00+00:00", True)
    assert _end(end, 730.0) == "What is owned and reserved no longer suffices from 2026-11-01."
    assert _end(end, 6.0) == "What is owned and reserved no longer suffices from 2026-11-01 04:00."
