"""Who goes without by ``provision ration``: from Python, the command line and a job, what would help, and bad input."""

import json

import pytest
import small_solver
from tiny_plans import make_instance

import provision
from provision.cli import main
from provision.commands.verb import Given, asked
from provision.instances.read import write

WORKLOADS = [
    {"name": "first", "model": "m", "slo_ms": 30.0, "rate_rps": 300.0, "priority": 1},
    {"name": "second", "model": "m", "slo_ms": 30.0, "rate_rps": 600.0, "floor": 0.25},
    {"name": "third", "model": "m", "slo_ms": 30.0, "rate_rps": 500.0, "weight": 0.5},
]
"""On one A100: 900 requests/s on the whole GPU or 350 on a 3g and 100 on each of four 1g."""
FLEET = [{"gpu": "a100-80gb", "price_per_hour": 4.0, "count": 1}]


def short(**changes):
    return make_instance(version=1, **{"workloads": WORKLOADS, "fleet": FLEET} | changes)


def test_the_first_is_served_the_second_cut_and_the_third_left_out():
    """What a 3g of the first leaves are 350 on the other 3g and 100 on a 1g."""
    found = provision.ration(short(), time_limit_s=10)
    shares = {one.workload: one.share for one in found.portions}
    assert shares["first"] == 1 and shares["third"] == 0 and 0 < shares["second"] < 1
    alone = small_solver.solve(found.instance)
    assert alone.value == found.result.objective == 4.0
    more = [one.model_copy(update={"rate_rps": one.rate_rps * 1.001}) if one.name == "second" else one
            for one in found.instance.workloads]
    assert small_solver.solve(found.instance.replace(workloads=more)).value is None
    assert provision.verify(found.instance, found.result.plan).ok
    assert all(level.proven for level in found.levels) and found.summary()["status"] == "optimal"


def test_what_would_bring_them_back_does_and_less_does_not():
    found = provision.ration(short(), time_limit_s=20)
    assert [one.workload for one in found.short] == ["second", "third"]
    for one in found.short:
        [count] = one.back.gpus.values()
        assert one.back.proven and one.back.more_per_hour == pytest.approx(4.0 * count)
        served = {other.workload: other.share for other in found.portions} | {one.workload: 1.0}
        whole = [asked.model_copy(update={"rate_rps": asked.rate_rps * served[asked.name]})
                 for asked in short().workloads if served[asked.name]]
        for further, there in ((count, True), (count - 1, False)):
            fleet = [short().fleet[0].model_copy(update={"count": 1 + further})]
            answer = small_solver.solve(short(workloads=whole, fleet=fleet))
            assert answer.exact and (answer.value is not None) is there


def test_a_longer_slo_brings_back_what_misses_its_own():
    """In 15 ms the model runs at once on a 1g; a third of that no slice does, which is told."""
    late = [WORKLOADS[0], WORKLOADS[1] | {"slo_ms": 16.1, "rate_rps": 100.0, "floor": 1.0}]
    found = provision.ration(short(workloads=late), time_limit_s=20)
    [one] = found.short
    assert one.workload == "second" and one.back.slo_ms == pytest.approx(20.0, rel=0.1)
    eased = [late[0], late[1] | {"slo_ms": one.back.slo_ms}]
    assert small_solver.solve(short(workloads=eased)).value is not None
    never = [WORKLOADS[0], WORKLOADS[1] | {"slo_ms": 5.0}]
    [one] = provision.ration(short(workloads=never), time_limit_s=10).short
    assert one.share == 0 and "slo_ms 16.001 or more would work" in one.reason


def test_a_budget_serves_what_it_pays_for(tmp_path, capsys):
    write(short(fleet=[{"gpu": "a100-80gb", "price_per_hour": 4.0}]), tmp_path / "short.json")
    line = ["ration", str(tmp_path / "short.json"), "--budget-per-hour", "7.5", "--time-limit", "10"]
    assert main([*line, "--json", "--out", str(tmp_path / "p.json"), "--instance-out", str(tmp_path / "i.json")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plan"]["cost_per_hour"] == 4.0 and told["workloads"][0]["share"] == 1
    assert told["workloads"][2]["back"]["more_per_hour"] == pytest.approx(0.5)  # a second GPU: 8.00
    assert main(["verify", str(tmp_path / "i.json"), str(tmp_path / "p.json")]) == 0
    capsys.readouterr()
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "third is left out; 0.50 $ per hour" in text and "Priority 1: 300 of 300" in text
    assert "\nThe weakest workload is " in text


def test_a_job_answers_as_the_command_line_does():
    instance = short()
    told = asked("ration", {"verb": "ration", "time_limit_s": 10.0}).job(
        Given(instance.model_dump(mode="json"), None, lambda kind, content: None))
    assert [one["share"] for one in told["workloads"]] == [
        one.share for one in provision.ration(instance, time_limit_s=10).portions]
    served, plan = provision.Instance(**told["served"]), provision.Plan(**told["plan"])
    assert provision.verify(served, plan).ok
    assert any(line.startswith("third is left out") for line in told["lines"])


def test_what_is_infeasible_names_this_verb(tmp_path, capsys):
    write(short(), tmp_path / "short.json")
    assert main(["solve", str(tmp_path / "short.json"), "--time-limit", "10"]) == 1
    assert "provision ration" in capsys.readouterr().out


def test_nobody_goes_without_where_there_is_enough():
    found = provision.ration(short(fleet=[FLEET[0] | {"count": 3}]), time_limit_s=10)
    assert found.short == [] and all(level.served == level.asked for level in found.levels)


@pytest.mark.parametrize(("changes", "options", "words"), [
    ({"workloads": [one | {"weight": 0.0} for one in WORKLOADS]}, [], "every weight is 0"),
    ({"workloads": [WORKLOADS[0] | {"rate_rps": 90000.0, "floor": 0.9}]}, [], "floor"),
    ({"fleet": [{"gpu": "a100-80gb", "price_per_hour": 4.0}]}, [], "fleet[0].count"),
    ({"fleet": [{"gpu": "a100-80gb", "count": 1}]}, ["--budget-per-hour", "3"], "a budget needs prices"),
    ({"fleet": [FLEET[0] | {"committed": True}]}, ["--budget-per-hour", "3"], "the committed GPUs alone cost 4"),
    ({"policy": {"survive": {"gpu_failures": 1}}}, [], "survive"),
    ({"workloads": [WORKLOADS[0] | {"slo_ms": 1.0}]}, [], "no workload can be served"),
])
def test_bad_input_is_one_line(changes, options, words, tmp_path, capsys):
    write(short(**changes), tmp_path / "short.json")
    assert main(["ration", str(tmp_path / "short.json"), "--time-limit", "5", *options]) == 2
    told = capsys.readouterr().err.strip()
    assert words in told and told.count("\n") == 0


@pytest.mark.parametrize(("field", "value"), [("priority", 1.5), ("priority", 5000), ("weight", -1.0), ("floor", 0.0),
                                              ("floor", 1.2)])
def test_fields_out_of_range_are_refused(field, value, tmp_path, capsys):
    content = short().model_dump(mode="json", exclude_none=True)
    content["workloads"][1][field] = value
    (tmp_path / "short.json").write_text(json.dumps(content))
    assert main(["ration", str(tmp_path / "short.json")]) == 2
    assert f"workloads[1].{field}" in capsys.readouterr().err
