"""Where newcomers stumbled: each is answered by a line that tells what happened and what to do."""

import provision
from provision.cli import main
from provision.draw.verdict import sentence
from provision.instances.ledger.ledger import ledger
from provision.models.problem.search import Outcome


def test_methods_with_a_space_between_them_are_refused_with_how_to_write_them(capsys):
    assert main(["compare", "parvagpu-s1", "--methods", "greedy", "auto"]) == 2
    assert "methods have commas between them: --methods greedy,auto" in capsys.readouterr().err


def test_a_drawing_of_a_plan_for_another_instance_says_so(tmp_path, capsys):
    provision.write(provision.solve("parvagpu-s1", "greedy", 4).plan, tmp_path / "plan.json")
    assert main(["show", "parvagpu-s1", str(tmp_path / "plan.json")]) == 0
    assert "note:" not in capsys.readouterr().err
    assert main(["show", "parvagpu-s3", str(tmp_path / "plan.json")]) == 0
    assert "note: the plan was made for parvagpu-s1; it is drawn on parvagpu-s3 as it is" in capsys.readouterr().err


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
