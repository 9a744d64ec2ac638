"""Tables of timed iterations, WVA's resources and inferno's folders: read, fitted, and inferno's written again."""

import json
from pathlib import Path

import pytest
import yaml
from plain import plain
from token_instances import chat, instance, performance

from provision.exporters.common import render
from provision.instances.importers.tokens.inferno import read_inferno
from provision.instances.importers.tokens.inferno_instance import inferno_instance
from provision.instances.importers.tokens.iterations import read_muxserve, read_splitwise, timed_iterations
from provision.instances.importers.tokens.wva import read_wva
from provision.models.base.errors import InputError
from provision.models.fitting.operators.costs import FITTED, TimedIteration, fit_iterations
from provision.models.performance.tokens import step
from provision.models.performance.tokens.step import TokenCosts
from provision.models.plans.plan import Plan, PlannedGpu, Replica, Slice

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public samples are not there")
TRUE = TokenCosts(*[0.0] * len(TokenCosts._fields))._replace(
    weights=30.0, token=0.1, sequence=0.2, context=1e-4, prefill=4.0, attended=5e-6)
decode_ms, prefill_ms = plain(step.decode_ms), plain(step.prefill_ms)


def timed(sequences, context, prompt):
    """An iteration as the model has it: sequences that decode, or prompts that are computed together."""
    if prompt:
        tokens, pairs = sequences * prompt, sequences * prompt * (prompt + 1) / 2
        return decode_ms(TRUE, 0.0, 0.0) + prefill_ms(TRUE, 0.0, tokens, pairs)
    return decode_ms(TRUE, sequences, sequences * context)


def test_fit_finds_the_coefficients_behind_iterations():
    sizes = [(1, 0, 128), (1, 0, 2048), (4, 0, 512), (1, 0, 8192), (1, 512, 0), (8, 512, 0), (64, 512, 0),
             (64, 4096, 0), (1, 8192, 0)]
    found = fit_iterations([TimedIteration(*size, timed(*size)) for size in sizes])
    for name in FITTED:
        assert getattr(found.costs, name) == pytest.approx(getattr(TRUE, name), rel=0.05), name
    with pytest.raises(InputError, match="1 timed iterations do not tell"):
        fit_iterations([TimedIteration(1, 0, 128, 30.0)])


@shared
def test_splitwise_fits_within_its_own_spread():
    rows = timed_iterations(read_splitwise(SHARED / "llm/splitwise_perf_model.csv"), "llama2-70b", "h100-80gb", 4)
    found = fit_iterations(rows)
    assert len(rows) == 210 and found.prompt_error < 0.07 and found.decode_error < 0.02
    with pytest.raises(InputError, match="no rows of llama2-70b on h100 with tensor parallelism 2; there are bloom"):
        timed_iterations(read_splitwise(SHARED / "llm/splitwise_perf_model.csv"), "llama2-70b", "h100", 2)


def test_muxserve_leaves_out_what_ran_out_of_memory(tmp_path):
    path = tmp_path / "llama.json"
    times = {"1": {"32": {"prefill": 16.0, "decoding": 11.0}}, "64": {"512": {"prefill": -1, "decoding": 28.0}}}
    path.write_text(json.dumps({"llama-7b": {"1": {"100": times}}}))
    assert read_muxserve(path, "llama-7b", 1, 100) == [
        TimedIteration(1, 0.0, 32, 16.0), TimedIteration(1, 32.0, 0, 11.0), TimedIteration(64, 512.0, 0, 28.0)]
    with pytest.raises(InputError, match="no percentage of SMs '40'; there is 100"):
        read_muxserve(path, "llama-7b", 1, 40)


def variant(**changes):
    one = {"acc": "A100", "accCount": 1, "maxBatchSize": 64, "perfParms": {
        "decodeParms": {"alpha": "20.5", "beta": "0.4"}, "prefillParms": {"gamma": "25.5", "delta": "0.1"}}} | changes
    return {"kind": "VariantAutoscaling", "spec": {"modelID": "llama", "modelProfile": {"accelerators": [one]}}}


def test_wva_keeps_its_times(tmp_path):
    path = tmp_path / "variant.yaml"
    path.write_text(yaml.safe_dump(variant()))
    [found] = read_wva(path)
    assert (found.model, found.accelerator, found.most_sequences) == ("llama", "A100", 64)
    assert decode_ms(found.costs, 10.0, 500.0) == pytest.approx(20.5 + 0.4 * 10)
    assert decode_ms(found.costs, 0.0, 0.0) + prefill_ms(found.costs, 0.0, 100.0, 5050.0) == pytest.approx(25.5 + 10)


@pytest.mark.parametrize(("content", "says"), [
    (variant(maxBatchSize=0), "A100: alpha, beta, gamma and delta must not be negative and maxBatchSize at least 1"),
    (variant(perfParms={}), "field 'decodeParms' is missing"),
    ({"kind": "Deployment"}, "kind 'Deployment'; give a VariantAutoscaling"),
    ({"kind": "VariantAutoscaling", "spec": {"modelID": "llama"}}, "has no modelProfile"),
])  # fmt: skip
def test_wva_refuses_in_one_line(tmp_path, content, says):
    path = tmp_path / "variant.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=says):
        read_wva(path)


@shared
@pytest.mark.parametrize(("size", "servers", "gpus"), [
    ("small", 15, {"a100-80gb", "2xa100-80gb", "4xa100-80gb", "2xl4", "4xl4", "8xl4"}),
    ("large", 27, {f"{many}{gpu}" for gpu in ("a100-80gb", "h100-80gb", "l4", "l40s") for many in ("", "2x", "4x")}
     | {"8xl4"}),
])
def test_inferno_keeps_what_known_gpus_serve_in_groups(size, servers, gpus):
    given = read_inferno(SHARED / "inferno" / size)
    found = inferno_instance(given, size, 99.0)
    assert {entry.gpu for entry in found.instance.fleet} == gpus
    assert len(found.instance.workloads) == servers and not found.servers
    [four] = [entry for entry in found.instance.fleet if entry.gpu == "4xa100-80gb"]
    assert (four.price_per_hour, four.count) == (1.6, given.capacity["A100"] // 4)
    assert set(found.instance.performance_of("8xl4", "llama_70b", "8gpu").models["llama_70b"].slices) == {"8gpu"}
    assert sum(note.startswith("left out: G2, no GPU type here") for note in found.notes) == 1
    assert any(note.startswith("A100: its") for note in found.notes)
    with pytest.raises(InputError, match="unknown GPU type 'h101'"):
        inferno_instance(given, size, 99.0, {"A100": "h101"})


def test_inferno_both_ways(tmp_path):
    """What is exported and read again asks the same of the same coefficients."""
    file = performance("h100-80gb")
    file["models"]["llama-8b"]["slices"] = {
        "whole": {"kv_tokens": 40_000, "step_ms": 7.0, "token_ms": 0.02, "context_ms": 5e-5}}
    asked = chat(rate_rps=2.0, tokens={"input": {"mean": 200}, "output": {"mean": 40}})
    problem = instance([asked], [{"gpu": "h100-80gb", "mig": False, "price_per_hour": 4.0, "count": 3}], [file])
    gpu = PlannedGpu(gpu="h100-80gb", mig=False, slices=(Slice(profile="whole", start=0, replicas=(
        Replica(workload="chat", batch=1024, processes=1, rate_rps=2.0),)),))
    made = Plan(version=1, instance=problem.name, digest=problem.digest, method="by hand", gpus=(gpu,))
    for name, text in render(made, "inferno", problem).items():
        (tmp_path / name).write_text(text)
    given = read_inferno(tmp_path)
    again = inferno_instance(given, "again", 99.0, {"h100-80gb": "h100-80gb"}).instance
    assert (given.solution["chat"].replicas, given.solution["chat"].cost, given.capacity) == (1, 400, {"h100-80gb": 3})
    assert given.solution["chat"].itl_ms == pytest.approx(7.2, abs=0.1)
    [before], [after] = problem.workloads, again.workloads
    assert (after.rate_rps, after.limits, after.tokens) == (before.rate_rps, before.limits, before.tokens)
    there = again.performance[0].models["llama-8b"].slices["whole"]
    assert (there.step_ms, there.token_ms, there.context_ms) == pytest.approx((7.0, 0.02, 5e-5))
    assert there.kv_tokens == 40_000
