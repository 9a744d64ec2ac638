"""What-if on price tiers, on points that lack data, within a budget; quantiles that never cross."""

import numpy as np
import pytest

import provision
from provision.cli import main
from provision.instances.files.demand import Demand
from provision.instances.files.files import validate
from provision.models.base.errors import InputError
from provision.models.problem.instance import Instance
from provision.sweeps import safety
from provision.sweeps.parameters import changed, tiers
from provision.sweeps.run import run
from provision.sweeps.safety import price_of_safety

SETTINGS = {"method": "auto", "time_limit_s": 60.0, "seed": 0}
GPU = "a100-80gb"


@pytest.fixture
def tiered():
    """S1 on two owned GPUs, named ones that are reserved, and others on demand."""
    s1 = provision.read("parvagpu-s1")
    fleet = [
        {"gpu": GPU, "price_per_hour": 0.9, "count": 2},
        {"gpu": GPU, "price_per_hour": 3.0, "count": 3, "tier": "reserved"},
        {"gpu": GPU, "price_per_hour": 5.12},
    ]
    return validate(Instance, s1.model_dump() | {"fleet": fleet, "performance": s1.performance}, "tiered")


def test_tiers_by_name(tiered):
    assert tiers(tiered) == {GPU: [0, 1, 2], f"{GPU}.1": [0], f"{GPU}.reserved": [1], f"{GPU}.on_demand": [2]}
    dearer = changed(tiered, {f"price.{GPU}.on_demand": 7, f"count.{GPU}.reserved": 1})
    assert [(one.price_per_hour, one.count) for one in dearer.fleet] == [(0.9, 2), (3.0, 1), (7, None)]
    with pytest.raises(InputError, match=f"vary one of {GPU}.1, {GPU}.reserved, {GPU}.on_demand"):
        changed(tiered, {f"price.{GPU}": 7})
    with pytest.raises(InputError, match="did you mean"):
        changed(tiered, {f"price.{GPU}.on_demnd": 7})


def test_a_name_of_a_tier_leaves_digests_as_they_were():
    assert "tier" not in provision.read("parvagpu-s1").model_dump()["fleet"][0]


def test_a_point_that_cannot_be_solved_is_a_row(tiered):
    points = [{f"price.{GPU}.on_demand": price} for price in (0.9, 4.0)]
    good = run(tiered, points[1:], SETTINGS)
    clash = tiered.model_dump() | {"performance": tiered.performance}
    clash["fleet"] = [tiered.fleet[0].model_dump() | {"count": None}, tiered.fleet[2].model_dump() | {"count": 9}]
    clash = validate(Instance, clash, "clash")
    rows = run(clash, [{f"price.{GPU}.2": 0.9}, {f"price.{GPU}.2": 4.0}], SETTINGS)
    assert [row["status"] for row in rows] == ["not applicable", "optimal"]
    assert "fleet" in rows[0]["reason"] and rows[0]["objective"] is None
    assert good[0]["status"] == "optimal"
    with pytest.raises(InputError, match="should be a number"):
        run(tiered, [{"rate": "x"}], SETTINGS)


def test_a_batch_limit_below_the_data_is_a_row():
    instance = provision.read("parvagpu-s1")
    rows = run(instance, [{"max_batch": 0}, {"max_batch": 64}], SETTINGS)
    assert rows[0]["status"] == "not applicable" and rows[1]["status"] == "optimal"


def test_budget(capsys):
    line = "what-if parvagpu-s1 --vary rate=0.5,1,2 --method auto --budget"
    base = provision.solve("parvagpu-s1", "auto").objective
    assert main([*line.split(), str(base)]) == 0
    assert f"Within {base:g} $ per hour: rate from 0.5 to 1 of those tried." in capsys.readouterr().out
    assert main([*line.split(), "0"]) == 0
    assert "no value of rate that was tried" in capsys.readouterr().out
    assert main([*line.split(), "-1"]) == 2


def test_quantiles_never_cross(monkeypatch):
    """Not even where a search gives up early at one of them: the plan of the next higher one is taken."""
    instance = provision.read("parvagpu-s1")
    names = tuple(one.name for one in instance.workloads)
    rates = np.array([[one.rate_rps * factor for one in instance.workloads] for factor in (0.5, 0.8, 1.0, 1.5)])
    demand, sound, calls = Demand(np.arange(4) * 600.0, names, rates), safety.solved, []

    def weak(varied, settings, **rest):
        calls.append(varied)
        method = "parvagpu-unoptimized" if len(calls) > 1 else "auto"
        return sound(varied, settings | {"method": method})

    monkeypatch.setattr(safety, "solved", weak)
    rows = price_of_safety(instance, demand, SETTINGS, (0.1, 0.6, 1.0))
    objectives, bounds = [row["objective"] for row in rows], [row["bound"] for row in rows]
    assert objectives == sorted(objectives)
    assert bounds[-1] is not None and rows[-1]["covered"] == 1
    known = [bound for bound in bounds if bound is not None]
    assert known == sorted(known)


def test_list_prices_are_varied_by_provider_and_tier(tmp_path):
    path = tmp_path / "listed.yaml"
    path.write_text(
        "{version: 1, name: listed, policy: {latency_budget: half_slo}, performance: [mlperf-l4, mlperf-l40s], "
        "fleet: [{gpu: l40s, price: aws}, {gpu: l40s, price: nebius}, {gpu: l4, price: aws}], "
        "workloads: [{name: a, model: resnet50, slo_ms: 20, rate_rps: 60000}]}"
    )
    instance = provision.read(path)
    dear, cheap = provision.what_if(instance, {"price.l40s.nebius.on_demand": [9.0, 0.1]})
    assert cheap["objective"] == pytest.approx(0.2) and dear["objective"] > 1


def test_a_batch_limit_leaves_out_data_that_has_no_smaller_batch(tmp_path):
    path = tmp_path / "listed.yaml"
    path.write_text(
        "{version: 1, name: listed, policy: {latency_budget: half_slo}, performance: [mlperf-l4, mlperf-l40s], "
        "fleet: [{gpu: l40s}, {gpu: l4}], workloads: [{name: a, model: resnet50, slo_ms: 20, rate_rps: 6000}]}"
    )
    instance = provision.read(path)
    rows = provision.what_if(instance, {"max_batch": [3.0, 8.0, 64.0]})
    assert [row["status"] for row in rows] == ["optimal", "optimal", "optimal"]
    only = instance.model_copy(update={"performance": (instance.performance[1],), "fleet": (instance.fleet[0],)})
    least, most = provision.what_if(only, {"max_batch": [3.0, 64.0]})
    assert least["status"] == "not applicable" and "no batch that small was measured" in least["reason"]
    assert most["status"] == "optimal"


def test_committed_gpus_count_in_the_table_and_the_budget(tmp_path, capsys):
    """One GPU is committed for 1 $; a second costs 4.22 $ more, so a budget of 4.5 $ is too little for two."""
    s1 = provision.read("parvagpu-s1")
    fleet = [{"gpu": GPU, "price_per_hour": 1.0, "count": 1, "tier": "own", "committed": True},
             {"gpu": GPU, "price_per_hour": 4.22, "tier": "more"}]
    file = tmp_path / "committed.json"
    file.write_text(validate(Instance, s1.model_dump() | {"fleet": fleet, "performance": s1.performance}, "committed")
                    .model_dump_json(exclude_none=True))
    assert main(["what-if", str(file), "--vary", "rate=1:1.4:0.4", "--budget", "4.5"]) == 0
    told = capsys.readouterr().out
    assert "Within 4.5 $ per hour: no value of rate" in told
    assert "cost_per_hour" in told and "5.22" in told and "objective" not in told
