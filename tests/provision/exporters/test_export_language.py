"""Servers of language models: vLLM's arguments, llm-d's values, Dynamo's graphs, KServe's runtime say what is planned.

What their projects publish is asked where the environment names it: ``PROVISION_LLM_D`` llm-d's ``values.schema.json``
(llm-d-incubation/llm-d-modelservice), ``PROVISION_CRDS`` a folder of CustomResourceDefinitions (of kserve/kserve and
ai-dynamo/dynamo), ``PROVISION_VLLM`` a Python that has vLLM, whose argument parser is then run.
"""

import json
import os
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from custom_resources import complaints
from export_plans import planned
from token_instances import CHAT, chat, instance, performance, times_as_long

from provision import solve
from provision.exporters.common import TARGETS, render
from provision.models.base.errors import InputError

NODE = {"version": 1, "kind": "tokens", "name": "node", "gpu": "4xh100-80gb",
        "engine": {"max_sequences": [64], "tokens_per_iteration": 4096},
        "models": {"llama-70b": {"slices": {"2gpu": {"kv_tokens": 90_000, **times_as_long(1.5)}}}}}
MIG = performance("a100-80gb", **{"3g40gb": (60_000, 2.0)}, engine={"max_sequences": [32]})
ARGUMENTS = ("served-model-name", "tensor-parallel-size", "max-num-seqs", "max-num-batched-tokens", "block-size",
             "gpu-memory-utilization", "max-model-len")


PARSER = """\
import json, sys
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
vllm.platforms.current_platform = CpuPlatform()  # without a GPU vLLM finds none of its platforms
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
asked = ("max_num_seqs", "tensor_parallel_size", "max_num_batched_tokens", "block_size", "max_model_len", "port",
         "gpu_memory_utilization", "enable_prefix_caching")
parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
for words in json.load(sys.stdin):
    found = vars(parser.parse_args(words))
    print(json.dumps({name: found[name] for name in asked}))
"""


@cache
def plan_of(case):
    """Instance and plan: models on MIG slices and on groups of a node, or separate pools."""
    if case == "pools":
        problem = instance([chat(tokens=CHAT | {"disaggregated": True}, rate_rps=200.0)])
    else:
        prefix = {"shared_prefix": {"tokens": 64}}
        workloads = [chat("small talk", 3.0), chat("large", 20.0, model="llama-70b", tokens=CHAT | prefix,
                                                   slo={"ttft_ms": 2000.0, "tpot_ms": 60.0})]
        fleet = [{"gpu": "4xh100-80gb", "price_per_hour": 16.0}, {"gpu": "a100-80gb", "price_per_hour": 2.0}]
        problem = instance(workloads, fleet, [NODE, MIG], policy={"headroom": 0.0})
    found = solve(problem, "greedy", replay=False)
    assert found.plan is not None, found.reason
    return problem, found.plan


def said(arguments):
    """Options by name, of arguments ``--name=value``."""
    return dict(one.removeprefix("--").partition("=")[::2] for one in arguments if one.startswith("--"))


def expected(problem, replica, gpus):
    tokens = problem.workload[replica.workload].tokens
    model = problem.model_of(replica)
    budget = 4096 if model == "llama-70b" else 8192
    return dict(zip(ARGUMENTS, map(str, (model, gpus, replica.batch, budget, 16, 0.9, tokens.most)), strict=True))


def replicas(plan):
    return [(one, int(piece.profile.removesuffix("gpu")) if piece.profile.endswith("gpu") else 1)
            for _, _, piece, one in plan.replicas()]


@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_vllm_gets_what_is_planned(case):
    problem, plan = plan_of(case)
    files = TARGETS["vllm"](plan, problem, 8).files
    scripts = {name: shlex.split(text, comments=True) for name, text in files.items() if name.endswith("serve.sh")}
    found = sorted((sorted(said(words).items()) for words in scripts.values()), key=str)
    wanted = []
    for replica, gpus in replicas(plan):
        tokens = problem.workload[replica.workload].tokens
        cache_flag = "enable-prefix-caching" if tokens.shared_prefix else "no-enable-prefix-caching"
        pool = {"kv-transfer-config": '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'} if tokens.pool else {}
        wanted.append(expected(problem, replica, gpus) | {cache_flag: ""} | pool)
    for one, script in zip(found, scripts.values(), strict=True):
        assert any(set(each.items()) <= set(one) for each in wanted), script
    assert len(found) == len(wanted)
    ports = [said(words)["port"] for words in scripts.values()]
    machines = [name.partition("/")[0] for name in scripts]
    assert len(set(zip(machines, ports, strict=True))) == len(ports)
    assert ("nginx.conf" in files) == (case == "mixed")


@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_vllms_parser_takes_the_arguments(case):
    if "PROVISION_VLLM" not in os.environ:
        pytest.skip("PROVISION_VLLM does not name a Python that has vLLM")
    problem, plan = plan_of(case)
    files = TARGETS["vllm"](plan, problem, 8).files
    scripts = [text.replace("\\\n", " ") for name, text in files.items() if name.endswith("serve.sh")]
    words = [shlex.split(text.partition("vllm serve ")[2]) for text in scripts]
    commands = [[re.sub(r"^\$\{MODEL:-(.*)\}$", r"\1", one) for one in each] for each in words]
    ran = subprocess.run([os.environ["PROVISION_VLLM"], "-c", PARSER], input=json.dumps(commands), capture_output=True,
                         text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-500:]
    parsed = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(parsed) == len(commands)
    for one, given in zip(parsed, map(said, commands), strict=True):
        for name, value in one.items():
            option = name.replace("_", "-")
            assert value == (option in given if option == "enable-prefix-caching" else type(value)(given[option]))


@pytest.mark.parametrize("target", ["kserve", "dynamo"])
@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_the_operators_definitions_know_every_field(case, target):
    if "PROVISION_CRDS" not in os.environ:
        pytest.skip("PROVISION_CRDS does not name a folder of CustomResourceDefinitions")
    files = [*Path(os.environ["PROVISION_CRDS"]).glob("*.yaml")]
    definitions = {yaml.safe_load(path.read_text())["spec"]["names"]["kind"]: path for path in files}
    problem, plan = plan_of(case)
    asked = 0
    for name, text in TARGETS[target](plan, problem, 8).files.items():
        for one in yaml.safe_load_all(text) if name.endswith(".yaml") else ():
            if one["kind"] in definitions:
                assert complaints(definitions[one["kind"]], one) == [], name
                assert complaints(definitions[one["kind"]], one | {"spec": one["spec"] | {"made_up": 1}})
                asked += 1
    if not asked:
        pytest.skip(f"PROVISION_CRDS has no definition of what {target} takes")


@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_llm_d_has_a_release_for_equal_replicas(case):
    problem, plan = plan_of(case)
    files = TARGETS["llm-d"](plan, problem, 8).files
    releases = {name: yaml.safe_load(text) for name, text in files.items() if name in files["install.sh"]}
    roles = [(role, one[role]) for one in releases.values() for role in ("prefill", "decode") if one[role]["create"]]
    assert len(roles) == len(releases) == files["install.sh"].count("helm upgrade")
    assert sum(one["replicas"] for _, one in roles) == len(replicas(plan))
    assert {role for role, _ in roles} == ({"prefill", "decode"} if case == "pools" else {"decode"})
    resources = {one["accelerator"]["resources"]["nvidia"] for one in releases.values()}
    assert resources == ({"nvidia.com/gpu"} if case == "pools" else {"nvidia.com/gpu", "nvidia.com/mig-3g.40gb"})
    for _, one in roles:
        [container] = one["containers"]
        assert said(container["args"])["max-num-seqs"] in {str(replica.batch) for replica, _ in replicas(plan)}
        assert "tensor-parallel-size" not in said(container["args"])
    tensors = sorted(one["parallelism"]["tensor"] for _, one in roles)
    assert tensors == sorted(gpus for _, gpus in {(replica.workload, gpus) for replica, gpus in replicas(plan)})


@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_llm_ds_schema_accepts_the_values(case):
    if "PROVISION_LLM_D" not in os.environ:
        pytest.skip("PROVISION_LLM_D does not name llm-d's values.schema.json")
    validator = jsonschema.Draft7Validator(json.loads(Path(os.environ["PROVISION_LLM_D"]).read_text()))
    files = TARGETS["llm-d"](plan_of(case)[1], plan_of(case)[0], 8).files
    for name, text in files.items():
        if name in files["install.sh"]:
            validator.validate(yaml.safe_load(text))
            assert not validator.is_valid(yaml.safe_load(text) | {"modelArtifacts": {"uri": 1, "what": 2}})


@pytest.mark.parametrize("case", ["mixed", "pools"])
def test_dynamo_has_a_graph_for_every_application(case):
    problem, plan = plan_of(case)
    files = TARGETS["dynamo"](plan, problem, 8).files
    graphs = list(yaml.safe_load_all(files["graphs.yaml"]))
    assert len(graphs) == (1 if case == "pools" else 2)
    services = [one for graph in graphs for one in graph["spec"]["services"].values()]
    workers = [one for one in services if one["componentType"] == "worker"]
    assert sum(one["replicas"] for one in workers) == len(replicas(plan))
    assert all(graph["spec"]["services"]["Frontend"]["componentType"] == "frontend" for graph in graphs)
    for one in workers:
        arguments = said(one["extraPodSpec"]["mainContainer"]["args"])
        assert arguments["tensor-parallel-size"] == one["resources"]["limits"]["gpu"]
        assert ("is-prefill-worker" in arguments) == (one["subComponentType"] == "prefill")
        assert ("gpuType" in one["resources"]["limits"]) == (arguments["served-model-name"] == "llama-8b"
                                                             and case == "mixed")
    rates = sum(float(one["annotations"]["provision/rate-rps"]) for one in workers)
    assert rates == pytest.approx(sum(replica.rate_rps for replica, _ in replicas(plan)), rel=1e-4)


def test_kserve_has_a_runtime_of_vllm():
    problem, plan = plan_of("mixed")
    files = TARGETS["kserve"](plan, problem, 8).files
    runtime = yaml.safe_load(files["runtime.yaml"])
    services = list(yaml.safe_load_all(files["services.yaml"]))
    assert len(services) == len(replicas(plan)) and "runtime.yaml" in files["kustomization.yaml"]
    for one in services:
        model = one["spec"]["predictor"]["model"]
        assert model["runtime"] == runtime["metadata"]["name"]
        assert model["modelFormat"]["name"] == runtime["spec"]["supportedModelFormats"][0]["name"]
        assert said(model["args"])["max-num-seqs"] in ("32", "64")


@pytest.mark.parametrize("to", ["vllm", "llm-d", "dynamo"])
def test_plans_without_language_models_are_refused(to):
    problem, plan = planned(0)
    with pytest.raises(InputError, match=f"{to}: serves language models"):
        render(plan, to, problem)


@pytest.mark.parametrize("to", ["vllm", "llm-d", "dynamo"])
def test_readme_says_what_to_do(to):
    problem, plan = plan_of("mixed")
    text = render(plan, to, problem)["README.md"]
    assert "GPU KV cache size" in text
    assert "90000 for llama-70b on 2gpu of 4xh100-80gb" in text and "60000 for llama-8b on 3g.40gb of a100-80gb" in text


@pytest.mark.parametrize("precision, flag, note", [
    ("fp8", "fp8", False), ("nvfp4", None, True), ("bfloat16", None, False), (None, None, False)])
def test_the_precision_that_is_planned_is_served(precision, flag, note):
    model = performance("h100-80gb", whole=(400_000, 1.0))
    model["models"]["llama-8b"] |= {"precision": precision, "kv_precision": precision and "fp8"}
    problem = instance([chat()], files=[model])
    plan = solve(problem, "greedy", replay=False).plan
    for to, file in (("vllm", "serve.sh"), ("dynamo", "graphs.yaml"), ("kserve", "services.yaml"), ("llm-d", "0.yaml")):
        files = render(plan, to, problem)
        [text] = [text for name, text in files.items() if name.endswith(file)][:1]
        assert ("--quantization=fp8" in text) == (flag == "fp8") and ("--kv-cache-dtype=fp8" in text) == bool(precision)
        assert ("name a checkpoint of that precision" in files["README.md"]) == note
