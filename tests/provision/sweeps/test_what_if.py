"""Sweeps, breakpoints, marginal prices and the price of safety."""

import csv
import dataclasses
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import provision
from provision.cli import main
from provision.commands.verb import print_json
from provision.instances.files.demand import Demand, read_demand
from provision.models.base.errors import InputError
from provision.models.problem.executor import Processes
from provision.sweeps import run as running
from provision.sweeps.marginal import marginal_prices, relaxed
from provision.sweeps.parameters import Sweep, changed, made, points_of
from provision.sweeps.safety import price_of_safety, windows_carried
from provision.sweeps.table import Table

SETTINGS = {"method": "auto", "time_limit_s": 60.0, "seed": 0}


@pytest.fixture(scope="module")
def s2():
    return provision.read("parvagpu-s2")


def test_each_parameter_changes_what_it_names(s2):
    assert changed(s2, {"rate": 2.0}).workloads[0].rate_rps == 2 * s2.workloads[0].rate_rps
    one = changed(s2, {"slo.bert": 0.5})
    assert one.workload["bert"].slo_ms == s2.workload["bert"].slo_ms / 2
    assert [a == b for a, b in zip(one.workloads, s2.workloads, strict=True)].count(False) == 1
    both = changed(s2, {"price.a100-80gb": 7.0, "count.a100-80gb": 3.0})
    assert (both.fleet[0].price_per_hour, both.fleet[0].count) == (7.0, 3)
    assert changed(s2, {"headroom": 0.3, "safety": 0.5}).policy.headroom == 0.3
    assert changed(s2, {"max_share_per_gpu": 0.5}).workloads[3].max_share_per_gpu == 0.5
    assert changed(s2, {"types": "a100-80gb"}).fleet == s2.fleet
    assert max(changed(s2, {"max_batch": 8}).performance[0].batches) == 8


@given(first=st.integers(0, 90), steps=st.integers(0, 60), step=st.integers(1, 40))
def test_ranges_hold_both_ends_and_no_rounding_errors(first, steps, step):
    text = f"{first / 100}:{(first + steps * step) / 100}:{step / 100}"
    values = [point["rate"] for point in points_of(made({"rate": text}))]
    assert values == [(first + index * step) / 100 for index in range(steps + 1)]


def test_points_of_a_grid_and_one_at_a_time():
    sweep = Sweep(vary={"rate": [1.0, 2.0], "slo": "1,2,3"})
    assert len(points_of(sweep)) == 6 and {"rate": 2.0, "slo": 3.0} in points_of(sweep)
    single = Sweep(vary=sweep.vary, points="one_at_a_time")
    assert points_of(single) == [{"rate": 1.0}, {"rate": 2.0}, {"slo": 1.0}, {"slo": 2.0}, {"slo": 3.0}]


def test_rows_are_those_of_solving_each_point_alone(s2):
    points = points_of(made({"rate": "0.8:1.6:0.4", "slo": "0.8,1"}))
    rows = running.run(s2, points, SETTINGS)
    for point, row in zip(points, rows, strict=True):
        result = provision.solve(changed(s2, point), **SETTINGS)
        assert {name: row[name] for name in point} == point
        assert (row["status"], row["objective"], row["gpus"]) == (result.status, result.objective, result.report.gpus)
        assert row["plan_gpus"] == f"a100-80gb:{row['gpus']}"


def test_a_plan_for_more_traffic_starts_the_search_for_less(s2):
    more = provision.solve(changed(s2, {"rate": 1.3}), **SETTINGS)
    found = provision.solve(s2, "auto", start=more.plan)
    assert found.verified and found.objective <= more.objective
    held = provision.solve(changed(s2, {"rate": 1.3}), "auto", start=found.plan)
    assert held.objective == more.objective


def test_interrupted_sweeps_go_on_to_the_same_table(s2, tmp_path):
    points = points_of(made({"rate": "0.8:1.2:0.02"}))
    key, path = running.digest(s2, points, SETTINGS), tmp_path / "table.csv"
    whole = running.run(s2, points, SETTINGS)
    first = Table(path, key)

    def stop(number, rows):
        first.add(number, rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running.run(s2, points, SETTINGS, tell=stop)
    with open(first.part, "a") as file:
        file.write(f'{key} [1, [{{"rate": 0.9')
    second = Table(path, key)
    assert list(second.done) == [0] and second.done[0] == whole[: running.CHUNK]
    done = []
    rows = running.run(s2, points, SETTINGS, second.done, lambda number, rows: done.append(number))
    second.finish(rows)
    assert rows == whole and 0 not in done and not second.part.exists()
    with open(path) as file:
        assert [float(row["rate"]) for row in csv.DictReader(file)] == [point["rate"] for point in points]
    with pytest.raises(InputError, match="exists already"):
        Table(path, key)


def test_a_journal_of_another_sweep_is_not_taken(s2, tmp_path):
    Table(tmp_path / "t.csv", "one").add(0, [{"rate": 1.0}])
    with pytest.raises(InputError, match="another sweep"):
        Table(tmp_path / "t.csv", "two")
    assert Table(tmp_path / "t.csv", "two", force=True).done == {}


def test_the_end_of_a_search_by_ctrl_c_ends_the_sweep(monkeypatch, tmp_path, capsys, s2):
    """``auto`` turns Ctrl-C into its best plan so far, which is no row of a table; nor does it mean the next point."""
    calls, out = [], tmp_path / "t.csv"

    def interrupted(instance, *arguments, **settings):
        calls.append(instance)
        result = provision.solve(instance, *arguments, **settings)
        return dataclasses.replace(result, termination="stopped") if len(calls) == 12 else result

    monkeypatch.setattr(running, "solve", interrupted)
    assert main(["what-if", "parvagpu-s1", "--vary", "rate=0.8:1.2:0.02", "--out", str(out)]) == 130
    captured = capsys.readouterr()
    assert len(calls) == 12 and captured.out == "" and f"{out}.part keeps" in captured.err and not out.exists()


def test_a_table_that_came_while_a_sweep_ran_is_not_overwritten(tmp_path):
    table = Table(tmp_path / "t.csv", "one")
    table.add(0, [{"rate": 1.0}])
    (tmp_path / "t.csv").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        table.finish([{"rate": 1.0}])
    assert (tmp_path / "t.csv").read_text() == "mine" and table.part.exists()


def test_two_sweeps_into_one_file_keep_apart(tmp_path):
    one, other = Table(tmp_path / "t.csv", "one"), Table(tmp_path / "t.csv", "other")
    one.add(0, [{"rate": 1.0}])
    other.add(0, [{"rate": 2.0}])
    with pytest.raises(InputError, match="another sweep"):
        Table(tmp_path / "t.csv", "one")
    (tmp_path / "d.csv.part").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        Table(tmp_path / "d.csv", "one")


def test_json_says_null_where_an_slo_cannot_be_met(capsys, tmp_path):
    """A tenth less than the SLO leaves no batch in time."""
    text = INSTANCE.replace("SLO", "31.6")
    path = tmp_path / "tight.yaml"
    path.write_text(text)
    assert main(["what-if", str(path), "--prices", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["prices"][0]["tighter_per_ms"] is None and found["prices"][0]["per_rps"] > 0


def test_nothing_that_json_cannot_say_is_printed(capsys):
    print_json({"a": [math.inf, (math.nan, 1.5)], "b": True})
    assert json.loads(capsys.readouterr().out) == {"a": [None, [None, 1.5]], "b": True}


INSTANCE = """
version: 1
name: "[/bold] $x^$"
fleet: [{gpu: a100-80gb}]
performance: parvagpu-a100
policy: {safety: 0.9}
workloads: [{name: "a.b,%s[/x]", model: bert, slo_ms: SLO, rate_rps: 10}]
"""


def test_names_mean_nothing_but_themselves(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text(INSTANCE.replace("SLO", "200"))
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    flags = ["--vary", "rate.a.b,%s[/x]=1,2", "--out", "odd.csv", "--png", "odd.svg"]
    assert main(["what-if", "odd.yaml", *flags]) == 0
    assert "more traffic of a.b,%s[/x]" in capsys.readouterr().out and (tmp_path / "odd.svg").exists()


def test_workers_do_not_change_the_table(s2):
    points = points_of(made({"rate": "0.8:1.2:0.04"}))
    with Processes(2) as executor:
        assert running.run(s2, points, SETTINGS, executor=executor) == running.run(s2, points, SETTINGS)


def test_duals_are_slopes_of_the_linear_program(s2):
    (value, per_rps), step = relaxed(s2), 1e-5
    for index, workload in enumerate(s2.workloads):
        slopes = []
        for sign in (-1, 1):
            varied = list(s2.workloads)
            varied[index] = workload.model_copy(update={"rate_rps": workload.rate_rps * (1 + sign * step)})
            slopes.append(sign * (relaxed(s2.replace(workloads=tuple(varied)))[0] - value))
        low, high = (slope / (workload.rate_rps * step) for slope in slopes)
        assert low - 1e-6 <= per_rps[index] <= high + 1e-6
    assert math.isclose(sum(price.share for price in marginal_prices(s2)), 1, rel_tol=1e-9)


def test_shorter_slos_cost_and_longer_ones_save(s2):
    assert all(price.tighter_per_ms >= -1e-12 and price.looser_per_ms >= -1e-12 for price in marginal_prices(s2))
    with pytest.raises(InputError, match="isolated"):
        marginal_prices(provision.read("igniter-testbed-12"))
    with pytest.raises(InputError, match="cannot carry"):
        marginal_prices(changed(s2, {"count.a100-80gb": 1}))


@given(st.lists(st.lists(st.floats(0, 300), min_size=2, max_size=2), min_size=1, max_size=20))
@settings(max_examples=25)
def test_the_robust_plan_covers_every_window(rates):
    instance = provision.read("parvagpu-s1")
    names = tuple(one.name for one in instance.workloads[:2])
    demand = Demand(np.arange(len(rates)) * 600.0, names, np.array(rates).round(3))
    rows = price_of_safety(instance, demand, SETTINGS | {"method": "greedy"}, (0.5, 1.0))
    assert rows[1]["covered"] == 1 and rows[0]["covered"] >= 0


def test_coverage_counts_windows(s2):
    plan = provision.solve(s2).plan
    name, rate = s2.workloads[0].name, s2.workloads[0].rate_rps
    demand = Demand(np.array([0.0, 600.0]), (name,), np.array([[rate], [100 * rate]]))
    assert windows_carried(s2, demand, plan) == 0.5 and windows_carried(s2, demand, None) is None


def test_demand_files(tmp_path):
    path = tmp_path / "demand.csv"
    path.write_text("rate_rps, time_s ,workload\n3,600,a\n1.5,0,b\n\n2,0,a\n")
    demand = read_demand(path)
    assert demand.workloads == ("a", "b") and demand.rates_rps.tolist() == [[2, 1.5], [3, 0]]
    assert demand.window_s == 600


@pytest.mark.parametrize("text, problem", [
    ("", "column 'time_s' is missing; it has none; expected time_s, workload, rate_rps"),
    ("time_s,workload,rate\n", "column 'rate_rps' is missing"),
    ("time_s,workload,rate_rps\n", "has no rows"),
    ("time_s,workload,rate_rps\n0,a,x\n", ":2: rate_rps 'x' is not a number; correct it"),
    ("time_s,workload,rate_rps\n\n0,a,-1\n", ":3: rate_rps '-1' must be finite and not negative"),
    ("time_s,workload,rate_rps\n0,a,nan\n", "rate_rps 'nan' must be finite"),
    ("time_s,workload,rate_rps\nnoon,a,1\n", ":2: time_s 'noon' is neither seconds nor a date"),
    ("time_s,workload,rate_rps\n0, ,1\n", ":2: workload is empty; write a name"),
    ("time_s,workload,rate_rps\n0,a,1\n0,a,2\n", "stands twice"),
    ("time_s,workload,rate_rps\n0,a\n", ":2: rate_rps None is not a number"),
    ('time_s,workload,rate_rps\n0,"a,1\n', ":2: not well-formed CSV"),
    ("time_s,workload,rate_rps\n0," + "a" * 200_000 + ",1\n", "not well-formed CSV"),
])
def test_broken_demand_files_get_one_line(tmp_path, text, problem):
    path = tmp_path / "demand.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        read_demand(path)


@pytest.mark.parametrize("flags, problem", [
    (["--vary", "rte=1:2:1"], "did you mean 'rate'"),
    (["--vary", "rate=2:1:0.5"], "an empty range"),
    (["--vary", "rate=1:2:inf"], "an empty range"),
    (["--vary", "rate=0:10:0.000001"], "1e\\+07 points"),
    (["--vary", "rate=1:2:0"], "not a range"),
    (["--vary", "rate=1:2"], "not a range"),
    (["--vary", "price=3"], "say for which GPU type"),
    (["--vary", "rate.foo=1"], "nothing called 'foo'"),
    (["--vary", "count.a100-80gb=1.5"], "whole number"),
    (["--vary", "count.a100-80gb=inf"], "not finite"),
    (["--vary", "rate=1e400"], "not finite"),
    (["--vary", "a\nb=1"], "vary"),
    (["--vary", "rate=1,2", "--seed", "-1"], "seed"),
    (["--vary", "rate=1,2", "--time-limit", "0"], "--time-limit"),
    (["--vary", "rate=1,2", "--demand", "nothing.csv"], "cannot be read"),
    (["--vary", "rate=1,2", "--breakpoints", "slo"], "needs a range"),
    (["--prices", "--demand", "nothing.csv", "--quantiles", "2"], "should be at most 1"),
    (["--vary", "max_share_per_gpu=0.1", "--method", "parvagpu"], "max_share_per_gpu"),
    (["--vary", "rate=-1:1:1"], "vary rate=-1:1:1: a value is below 0"),
    (["--vary", "types=h100"], "not in the fleet"),
    (["--vary", "slo=abc"], "should be a number, FIRST:LAST:STEP"),
    (["--vary", "rate=1,1"], "stands twice"),
    (["--vary", "rate"], "NAME=VALUE"),
    (["--vary", "rate=1", "--vary", "rate=2"], "given twice"),
    (["--vary", "rate=1", "--breakpoints", "rate"], "needs a range"),
    (["--vary", "types=a100-80gb", "--breakpoints", "types"], "no numbers"),
    (["--breakpoints", "rate"], "needs something to vary"),
    ([], "say what to vary"),
    (["--vary", "rate=1", "--out", "t.txt"], "ends in .csv"),
    (["--vary", "rate=1", "--png", "t.jpg"], "PNG or SVG"),
    (["--vary", "rate=1", "--workers", "0"], "at least 1"),
    (["--vary", "rate=1", "--workers", "2", "--dask", "tcp://127.0.0.1:9"], "use one of them"),
    (["--vary", "rate=1", "--sweep", "nothing.yaml"], "use one of them"),
    (["--sweep", "nothing.yaml"], "cannot be read"),
    (["--demand", "nothing.csv"], "cannot be read"),
])
def test_bad_sweeps_get_one_line(capsys, tmp_path, monkeypatch, flags, problem):
    monkeypatch.chdir(tmp_path)
    assert main(["what-if", "parvagpu-s1", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert re.search(problem, captured.err)
    assert not list(tmp_path.iterdir())


def test_the_command_answers_in_words_tables_and_pictures(capsys, tmp_path):
    out, png = tmp_path / "t.csv", tmp_path / "t.png"
    flags = ["--vary", "rate=0.8:1.4:0.2", "--breakpoints", "rate", "--prices", "--out", str(out), "--png", str(png)]
    assert main(["what-if", "parvagpu-s2", *flags]) == 0
    text = capsys.readouterr().out
    assert "40 % more traffic: 4 GPUs (20.48 $ per hour) instead of 3, +33.3% cost." in text
    assert "The next GPU is due at +26.94 % traffic." in text
    assert out.exists() and png.read_bytes().startswith(b"\x89PNG")
    assert main(["what-if", "parvagpu-s2", "--vary", "rate=1,1.4", "--vary", "slo=1,2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == 4 and found["base"]["gpus"] == 3
    assert "Of 4 points, 4 can be served" in found["answers"][1]


def test_sweeps_from_a_file_and_parquet_tables(capsys, tmp_path):
    sweep, out = tmp_path / "sweep.yaml", tmp_path / "t.parquet"
    sweep.write_text('points: one_at_a_time\nvary: {rate: "0.9:1.1:0.1", slo.bert: [0.5, 2]}\n')
    assert main(["what-if", "parvagpu-s1", "--sweep", str(sweep), "--out", str(out)]) == 0
    rows = parquet.read_table(out).to_pylist()
    assert [row["rate"] for row in rows] == [0.9, 1.0, 1.1, None, None]
    assert [row["slo.bert"] for row in rows] == [None, None, None, 0.5, 2.0]
    sweep.write_text("vary: {rate: 1, colour: 2}\n")
    capsys.readouterr()
    assert main(["what-if", "parvagpu-s1", "--sweep", str(sweep)]) == 2
    assert "vary.rate" in capsys.readouterr().err
