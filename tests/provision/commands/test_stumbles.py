"""Where newcomers stumbled: each is answered by a line that tells what happened and what to do."""

import csv
import io
import json

import provision
from provision.answers.margins import how_sure, margins_of
from provision.answers.tails import Tail
from provision.cli import main
from provision.commands.planning.replan import _during
from provision.draw.verdict import sentence
from provision.instances.ledger.ledger import ledger
from provision.models.base.register import one_of
from provision.models.problem.search import Outcome
from provision.solving.methods import methods
from provision.sweeps.words import changes


def test_methods_with_a_space_between_them_are_refused_with_how_to_write_them(capsys):
    assert main(["compare", "parvagpu-s1", "--methods", "greedy", "auto"]) == 2
    assert "methods have commas between them: --methods greedy,auto" in capsys.readouterr().err


def test_a_drawing_of_a_plan_for_another_instance_says_so(tmp_path, capsys):
    provision.write(provision.solve("parvagpu-s1", "greedy", 4).plan, tmp_path / "plan.json")
    assert main(["show", "parvagpu-s1", str(tmp_path / "plan.json")]) == 0
    assert "note:" not in capsys.readouterr().err
    assert main(["show", "parvagpu-s3", str(tmp_path / "plan.json")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "plan.json: made for parvagpu-s1, not for parvagpu-s3; name the instance that it was" in err
    changed = provision.read("parvagpu-s1").replace(policy={"headroom": 0.1})
    provision.write(changed, tmp_path / "changed.yaml")
    assert main(["show", str(tmp_path / "changed.yaml"), str(tmp_path / "plan.json")]) == 0
    assert "note: the plan was made for another state of parvagpu-s1" in capsys.readouterr().err


def test_questions_that_nobody_hears_name_the_options(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["init", str(tmp_path / "new")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[-1].startswith("error: nobody answers on stdin; add --yes")
    assert not (tmp_path / "new").exists()


def test_the_plans_for_quantiles_of_demand_are_written(tmp_path, capsys):
    (tmp_path / "demand.csv").write_text("time_s,workload,rate_rps\n0,resnet50,500\n60,resnet50,800\n")
    line = ["what-if", "parvagpu-s1", "--method", "greedy", "--out", str(tmp_path / "out.csv")]
    assert main([*line, "--demand", str(tmp_path / "demand.csv"), "--quantiles", "0.5,1"]) == 0
    assert "table written to" in capsys.readouterr().out
    assert [row["quantile"] for row in csv.DictReader((tmp_path / "out.csv").open())] == ["0.5", "1.0"]
    assert main([*line[:-1], str(tmp_path / "no.csv"), "--prices"]) == 2
    assert "--out: needs something to vary" in capsys.readouterr().err


def test_the_trade_off_fits_80_characters(tmp_path, capsys):
    provision.write(provision.solve("parvagpu-s1", "greedy", 4).plan, tmp_path / "plan.json")
    assert main(["replan", "parvagpu-s1", str(tmp_path / "plan.json"), "--rate", "1.5", "--curve"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "started" in out


def test_methods_are_told_a_line_each(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < len(methods()) + 10 and max(map(len, lines)) <= 130


def test_a_benchmark_that_ends_with_1_says_why(capsys, monkeypatch):
    known = ledger()["parvagpu-s1"]
    better = {"parvagpu-s1": known.model_copy(update={"value": known.value / 2})}
    monkeypatch.setattr("provision.commands.planning.bench.ledger", lambda: better)
    monkeypatch.setattr("provision.commands.planning.bench._names", lambda families: ["parvagpu-s1"])
    assert main(["bench", "parvagpu", "--method", "greedy", "--time-limit", "4"]) == 1
    told = capsys.readouterr().err
    assert "exit code 1: of parvagpu-s1 a better plan is known than greedy has after 4 s" in told
    assert "--time-limit" in told


def test_no_plan_in_time_has_a_remedy():
    nothing = provision.solve("parvagpu-s1", lambda *_: Outcome("unknown", "time_limit"), replay=False)
    assert "a longer --time-limit may help" in sentence(provision.read("parvagpu-s1"), nothing)


def test_a_limit_that_nobody_stated_is_not_told(tmp_path, capsys):
    """Of a language model with limits on its tokens alone, the limit on whole answers is derived."""
    chat = provision.read("mlperf-llama-3.1-8b-server")
    derived = f"{chat.workloads[0].slo_ms:,.0f}"
    plan = provision.solve(chat, "greedy", 8, replay=False).plan
    assert chat.derived_limits == {chat.workloads[0].name}
    provision.write(plan, tmp_path / "plan.json")
    assert main(["verify", chat.name, str(tmp_path / "plan.json")]) == 0
    told = capsys.readouterr().out
    assert "every limit of tokens is kept" in told and derived not in told
    main(["simulate", chat.name, str(tmp_path / "plan.json"), "--seconds", "2"])
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == [chat.workloads[0].name]]
    assert row.split()[1] == "-"


def test_a_sweep_without_a_change_tells_what_holds():
    [told] = changes("rate", [], [0.8, 1.4, 1.0])
    assert told.startswith("At every rate that was tried, from 0.8 to 1.4, the best plan has the same GPUs")


def test_the_name_that_is_meant_comes_before_all_names(capsys):
    assert main(["solve", "parvagpu-s1", "--method", "grediy"]) == 2
    assert "unknown method 'grediy'; did you mean 'greedy'? `provision methods` lists all" in capsys.readouterr().err
    assert one_of("zzz", ["a", "b"]) == "use one of a, b"


def test_what_is_served_during_a_change_is_told_in_words():
    assert _during(1.0) == "While that happens, all traffic is served by replicas that are left alone."
    assert "serve every workload, each at 52% of its rate or more" in _during(0.529)
    assert _during(0.0, ["a", "b"]).endswith("these are not served, since no replica of theirs is left alone: a, b.")


def test_a_comparison_tells_what_gaps_are_to(capsys):
    """Those of a method without a bound of its own too."""
    assert main(["compare", "parvagpu-s1", "--methods", "paris,auto"]) == 0
    assert "gap: of every plan to 10.24, the best bound that any of these methods proves" in capsys.readouterr().out


def test_a_tick_says_what_it_promises_where_a_band_ends_above_the_slo():
    shop = provision.read("parvagpu-s1")
    plan = provision.solve(shop, "greedy", 4, replay=False).plan
    found = margins_of(shop, plan)
    band = Tail(what="P99", ms=1.0, low_ms=0.5, high_ms=1e9, low=0.9, high=1.1)
    over = [found[0].model_copy(update={"replayed": band}), *found[1:]]
    promise = f"at the upper end of their known errors {found[0].workload} would be late"
    assert promise in "\n".join(how_sure(shop, plan, over))
    assert promise not in "\n".join(how_sure(shop, plan, found))


def test_a_described_language_model_has_a_plan_however_short_the_limit(capsys):
    """As on a busy machine, where the search proper is left before it has begun."""
    line = "solve --model llama-3.1-8b --rate 20 --isl 1024 --osl 256 --ttft 500 --tpot 30 --gpus h100 --time-limit .01"
    assert main([*line.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] in ("feasible", "optimal") and found["verified"]
