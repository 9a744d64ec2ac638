"""Bad input gives one clear line and exit code 2; what cannot be met is infeasible and says what could be."""

import copy
import json
import random
from pathlib import Path

import pytest
import yaml

from provision.cli import main

NAN, INF = float("nan"), float("inf")
INSTANCE = {
    "version": 1,
    "name": "tiny",
    "policy": {"safety": 1.0},
    "fleet": [{"gpu": "a100-80gb"}],
    "performance": "parvagpu-a100",
    "workloads": [{"name": "a", "model": "resnet50", "slo_ms": 200, "rate_rps": 100}],
}
SECOND = {"name": "b", "model": "vgg16", "slo_ms": 400, "rate_rps": 50}
PERFORMANCE = {
    "version": 1,
    "name": "own",
    "kind": "measured-segments",
    "gpu": "a100-80gb",
    "models": {"resnet50": {"points": [["1g.10gb", 4, 1, 100.0, 40.0]]}},
}
REPLICA = {"workload": "a", "batch": 8, "rate_rps": 100}
PLAN = {
    "version": 1,
    "instance": "tiny",
    "gpus": [{"gpu": "a100-80gb", "mig": True, "slices": [{"profile": "7g.80gb", "replicas": [REPLICA]}]}],
}
MISSING = object()


def changed(content, field, value):
    """A deep copy with the value at a path such as ``workloads.0.slo_ms`` replaced, or taken out."""
    content = copy.deepcopy(content)
    *path, last = [int(part) if part.isdigit() else part for part in field.split(".")]
    at = content
    for part in path:
        at = at[part]
    if value is MISSING:
        del at[last]
    else:
        at[last] = value
    return content


def as_json(content, name="instance.json"):
    """Files by name: one JSON file."""
    return {name: json.dumps(content)}


def instance(field, value):
    """What ``solve`` is given: the instance with one field changed."""
    return as_json(changed(INSTANCE, field, value)), "solve instance.json"


def plan(field, value):
    """What ``verify`` is given: a plan with one field changed."""
    files = as_json(INSTANCE) | as_json(changed(PLAN, field, value), "plan.json")
    return files, "verify instance.json plan.json"


def own(field, value):
    """An instance that names a performance file with one field changed."""
    files = as_json(changed(PERFORMANCE, field, value), "own.json")
    return files | as_json(changed(INSTANCE, "performance", "own.json")), "solve instance.json"


def text(content, name="instance.yaml"):
    """What ``solve`` is given: a file with this content."""
    return {name: content}, f"solve {name}"


def command(line):
    """A command beside a good instance and a good plan."""
    return as_json(INSTANCE) | as_json(PLAN, "plan.json"), line


def tables(
    profile="1,1,1,50,0.02",
    header="Mig instance,Batch size,Workload Number,Throughput,Latency",
    slo="200",
    rate="100",
    row=1,
):
    """What ``import parvagpu`` is given: one profile table and one row of each SLO table."""
    files = {
        "data/prof_data/resnet50.csv": f"{header}\n{profile}\n",
        "data/SLO/SLO_latency.csv": f"{slo}\n",
        "data/SLO/SLO_req_rate.csv": f"{rate}\n",
    }
    return files, f"import parvagpu data --slo-row {row} --out out.yaml"


def deployment(row, header="Num instance,Num GPU,Model,Placement,Instance size,Batch size,Num proc"):
    """What ``import parvagpu-deployment`` is given: a map of one row."""
    line = "import parvagpu-deployment map.csv --instance instance.json --out out.json"
    return as_json(INSTANCE) | {"map.csv": f"{header}\n{row}\n"}, line


def workloads(*more):
    """What ``solve`` is given: the instance with further workloads."""
    return instance("workloads", [*INSTANCE["workloads"], *more])


def fleet(*entries):
    """What ``solve`` is given: the instance with another fleet."""
    return instance("fleet", list(entries))


def two(field, value, other, another):
    """What ``solve`` is given: the instance with two fields changed."""
    return as_json(changed(changed(INSTANCE, field, value), other, another)), "solve instance.json"


def throughput(field, value):
    """What ``solve`` is given: the instance for most throughput on one GPU, with one field changed."""
    fixed = changed(changed(INSTANCE, "objective", "max_throughput"), "fleet", [A100 | {"count": 1}])
    return as_json(changed(fixed, field, value)), "solve instance.json"


def laughs():
    """A short YAML file of ten to the ninth values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines)


def merges():
    """A short YAML file whose merge keys would make ten to the ninth pairs."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    return "\n".join(lines)


def noise():
    """Ten megabytes of words."""
    draw = random.Random(1)
    line = " ".join("".join(draw.choices("abcdefgh{}[]:,-", k=9)) for _ in range(100))
    return "\n".join([line] * 10_000)


GOOD_YAML = yaml.safe_dump(INSTANCE)
V100 = {"gpu": "v100"}
A100 = {"gpu": "a100-80gb"}
TWICE = [PERFORMANCE, changed(PERFORMANCE, "name", "other")]

CASES = {
    # Fields of an instance.
    "model_unknown": (
        instance("workloads.0.model", "gpt-9"),
        "workloads[0].model: no performance data for 'gpt-9'",
    ),
    "variant_unknown": (
        instance("workloads.0.variants", ["vgg16", "gpt-9"]),
        "workloads[0].variants[1]: no performance data for 'gpt-9'",
    ),
    "variant_twice": (
        instance("workloads.0.variants", ["vgg16", "vgg16"]),
        "workloads[0].variants: 'vgg16' stands twice, model counted; name every model once",
    ),
    "variant_is_the_model": (instance("workloads.0.variants", ["resnet50"]), "'resnet50' stands twice"),
    "variant_text": (instance("workloads.0.variants", "vgg16"), "workloads[0].variants: should be a list"),
    "model_missing": (instance("workloads.0.model", MISSING), "workloads[0].model: is missing; add it"),
    "slo_nan": (instance("workloads.0.slo_ms", NAN), "workloads[0].slo_ms: should be a finite number (got nan)"),
    "slo_nan_yaml": (
        text(GOOD_YAML.replace("slo_ms: 200", "slo_ms: .nan")),
        "should be a finite number (got nan)",
    ),
    "slo_infinite": (instance("workloads.0.slo_ms", INF), "should be a finite number (got inf)"),
    "slo_zero": (instance("workloads.0.slo_ms", 0), "slo_ms: should be greater than 0 (got 0)"),
    "slo_negative": (instance("workloads.0.slo_ms", -3.5), "should be greater than 0 (got -3.5)"),
    "slo_text": (instance("workloads.0.slo_ms", "200"), "(got '200'); write a number, without quotes"),
    "slo_true": (instance("workloads.0.slo_ms", True), "slo_ms: should be a valid number (got True)"),
    "slo_null": (instance("workloads.0.slo_ms", None), "slo_ms: should be a valid number (got None)"),
    "slo_list": (instance("workloads.0.slo_ms", [200]), "slo_ms: should be a valid number (got [200])"),
    "slo_base_60": (text(GOOD_YAML.replace("slo_ms: 200", "slo_ms: 3:20")), "(got '3:20'); write a number"),
    "rate_octal": (text(GOOD_YAML.replace("rate_rps: 100", "rate_rps: 0100")), "(got '0100'); write a number"),
    "rate_negative": (
        instance("workloads.0.rate_rps", -1),
        "rate_rps: should be greater than or equal to 0 (got -1)",
    ),
    "rate_tiny": (instance("workloads.0.rate_rps", 1e-300), "workloads[0]: rate_rps should be 0 or at least 1e-09"),
    "rate_huge": (instance("workloads.0.rate_rps", 1e308), "workloads[0].rate_rps"),
    "rate_billions": (instance("workloads.0.rate_rps", 1e12), "lower the rate"),
    "rate_400_digits": (instance("workloads.0.rate_rps", 10**400), "workloads[0].rate_rps"),
    "rate_5000_digits": (
        text('{"version": ' + "9" * 5000 + "}", "instance.json"),
        "instance.json: not well-formed",
    ),
    "replicas_negative": (
        instance("workloads.0.min_replicas", -1),
        "min_replicas: should be greater than or equal",
    ),
    "replicas_fraction": (instance("workloads.0.min_replicas", 1.5), "min_replicas: should be a valid integer"),
    "replicas_huge": (instance("workloads.0.min_replicas", 10**9), "min_replicas: should be less than or equal"),
    "share_zero": (instance("workloads.0.max_share_per_gpu", 0), "max_share_per_gpu: should be greater than 0"),
    "share_above_1": (
        instance("workloads.0.max_share_per_gpu", 1.01),
        "should be less than or equal to 1 (got 1.01)",
    ),
    "share_tiny": (instance("workloads.0.max_share_per_gpu", 1e-9), "raise max_share_per_gpu"),
    "name_twice": (workloads(SECOND, SECOND), "workloads[2].name: 'b' stands twice"),
    "name_empty": (instance("workloads.0.name", ""), "workloads[0].name: String should have at least 1 character"),
    "name_control": (
        instance("workloads.0.name", "a\x1b[31m\n"),
        "workloads[0].name: String should match pattern",
    ),
    "name_number": (instance("name", 7), "name: should be a valid string (got 7); write text"),
    "name_no": (text(GOOD_YAML.replace("name: tiny", "name: no")), "name: should be a valid string (got False)"),
    "no_workloads": (instance("workloads", []), "workloads: should have at least 1 entry"),
    "workload_text": (instance("workloads", ["resnet50"]), "workloads[0]: should be fields with values"),
    "unknown_field": (instance("wrokloads", []), "wrokloads: unknown field; remove it or check its spelling"),
    "unknown_nested": (instance("workloads.0.sloo", 3), "workloads[0].sloo: unknown field"),
    "unknown_control": (instance("x\x1b[2J\ny", 1), r"x\x1b[2J y: unknown field"),
    "version_missing": (instance("version", MISSING), "version: is missing; add it"),
    "version_3": (instance("version", 3), "version: should be 1 or 2 (got 3)"),
    "version_text": (instance("version", "1"), "version: should be 1 or 2 (got '1')"),
    "version_true": (instance("version", True), "version: should be 1 (got True)"),
    "objective": (
        instance("objective", "max_fun"),
        "objective: should be 'min_cost', 'min_gpus' or 'max_throughput' (got 'max_fun')",
    ),
    "throughput_uncounted": (throughput("fleet.0.count", MISSING), "fleet[0].count: max_throughput needs a fixed"),
    "throughput_replan": (
        (throughput("name", "tiny")[0] | as_json(PLAN, "plan.json"), "replan instance.json plan.json"),
        "max_throughput has no cost",
    ),
    "throughput_prices": (
        (throughput("name", "tiny")[0], "what-if instance.json --prices"),
        "not for share_slices, igniter data, max_throughput",
    ),
    # Fleet and policy.
    "version_quoted": (instance("version", "2"), "version: should be 1 or 2 (got '2'); write a number without quotes"),
    "fleet_empty": (fleet(), "fleet: should have at least 1 entry"),
    "gpu_unknown": (fleet({"gpu": "a1000"}), "fleet[0]: unknown GPU type 'a1000'; did you mean"),
    "gpu_without_mig": (fleet(V100 | {"mig": True}), "fleet[0]: GPU type v100 has no MIG; leave mig out"),
    "mig_text": (
        fleet(A100 | {"mig": "yes"}),
        "fleet[0].mig: should be a valid boolean (got 'yes'); write true or",
    ),
    "fleet_twice": (fleet(A100, A100), "fleet[1].gpu: 'a100-80gb' stands twice"),
    "priced_partly": (fleet(A100 | {"price_per_hour": 4.0}, V100), "price all or none"),
    "price_negative": (fleet(A100 | {"price_per_hour": -4.0}), "fleet[0].price_per_hour: should be greater"),
    "price_huge": (fleet(A100 | {"price_per_hour": 1e308}), "fleet[0].price_per_hour: should be less than"),
    "count_negative": (fleet(A100 | {"count": -1}), "fleet[0].count: should be greater than or equal to 0"),
    "count_huge": (fleet(A100 | {"count": 10**30}), "fleet[0].count: should be less than or equal"),
    "safety_zero": (instance("policy.safety", 0), "policy.safety: should be greater than 0"),
    "safety_above_1": (instance("policy.safety", 1.1), "policy.safety: should be less than or equal to 1"),
    "headroom_negative": (
        instance("policy.headroom", -0.1),
        "policy.headroom: should be greater than or equal to 0",
    ),
    "headroom_huge": (instance("policy.headroom", 11), "policy.headroom: should be less than or equal to 10"),
    "budget": (
        instance("policy.latency_budget", "all"),
        "policy.latency_budget: should be 'half_slo' or 'full_batches' or 'queueing' (got 'all')",
    ),
    "policy_list": (instance("policy", []), "policy: should be fields with values"),
    # Performance data.
    "performance_lost": (instance("performance", "lost.yaml"), "performance: 'lost.yaml' is neither shipped data"),
    "performance_long": (instance("performance", "x" * 5000), "performance: 'xxx"),
    "performance_number": (instance("performance", 5), "performance[0]: should be"),
    "performance_null": (instance("performance", None), "performance[0]: should be"),
    "performance_none": (instance("performance", []), "no performance data for 'resnet50'"),
    "performance_nested": (instance("performance", [["parvagpu-a100"]]), "performance[0]: should be"),
    "performance_twice": (instance("performance", TWICE), "performance: two files describe resnet50 on a100-80gb"),
    "own_kind": (own("kind", "magic"), "own.json: kind should be one of 'measured-segments'"),
    "own_kind_missing": (own("kind", MISSING), "own.json: kind is missing; add it"),
    "own_gpu": (own("gpu", "a1000"), "own.json: unknown GPU type 'a1000'"),
    "own_profile": (
        own("models.resnet50.points.0.0", "9g.90gb"),
        "own.json: model resnet50: a100-80gb has no profile",
    ),
    "own_latency": (own("models.resnet50.points.0.4", 0), "own.json: models.resnet50.points[0][4]: should be"),
    "own_short": (own("models.resnet50.points.0", ["1g.10gb"]), "own.json: models.resnet50.points[0]"),
    "own_itself": (instance("performance", "instance.json"), "instance.json: is an instance; give performance"),
    # Files.
    "no_file": (command("solve nowhere.yaml"), "nowhere.yaml: no such file, and no shipped instance; provision"),
    "folder": (command("solve ."), ".: cannot be read: Is a directory"),
    "long_name": (command(f"solve {'x' * 5000}"), "no such file"),
    "endless": (command("verify instance.json /dev/zero"), "/dev/zero: "),
    "empty": (text(""), "instance.yaml: holds nothing, not fields"),
    "empty_json": (text("", "instance.json"), "instance.json:1: not well-formed JSON"),
    "only_list": (text("- 1\n- 2\n"), "instance.yaml: holds a list, not fields"),
    "binary": (text(bytes(range(256))), "instance.yaml: not a text file"),
    "latin_1": (text("name: caf\xe9".encode("latin-1")), "instance.yaml: not a text file"),
    "null_bytes": (text("name: a\x00b"), "instance.yaml: not a text file"),
    "yaml_cut": (text(GOOD_YAML[:-20] + "["), "not well-formed YAML"),
    "json_cut": (text(json.dumps(INSTANCE)[:-9], "instance.json"), "instance.json:1: not well-formed JSON"),
    "yaml_key_twice": (text(GOOD_YAML + "name: again\n"), "key 'name' stands twice; keep one"),
    "json_key_twice": (text('{"name": "a", "name": "b"}', "instance.json"), "key 'name' stands twice; keep one"),
    "yaml_tag": (
        text("a: !!python/object/apply:os.system [ls]"),
        "instance.yaml:1: not well-formed YAML: could not",
    ),
    "yaml_tab": (text("version: 1\n\tname: x"), "instance.yaml:2: not well-formed YAML"),
    "yaml_two": (text(f"{GOOD_YAML}---\n{GOOD_YAML}"), "not well-formed YAML"),
    "yaml_key_list": (text("[1, 2]: 3"), "instance.yaml:1: not well-formed YAML"),
    "yaml_key_number": (text("1: 3"), "instance.yaml: "),
    "yaml_circle": (text("a: &a [*a]"), "aliases lead back to themselves"),
    "yaml_laughs": (text(laughs()), "aliases add more than 1000000 values"),
    "yaml_merges": (text(merges()), "write the fields out"),
    "yaml_deep": (text("[" * 10_000_000), "more than 100 levels of nesting"),
    "yaml_deep_lines": (text("\n".join(" " * n + "a:" for n in range(2000))), "more than 100 levels of nesting"),
    "json_deep": (text("[" * 1_000_000, "instance.json"), "instance.json: more than 100 levels of nesting"),
    "noise": (text(noise()), "instance.yaml"),
    "one_line": (text("a" * 10_000_000), "instance.yaml: holds text, not fields"),
    "long_field": (text('{"' + "a" * 10_000_000 + '": 1}', "instance.json"), "instance.json: "),
    "plan_as_instance": (command("solve plan.json"), "plan.json: "),
    "instance_as_plan": (command("verify instance.json instance.json"), "instance.json: is an instance; give a plan"),
    # Plans.
    "plan_lost": (command("verify instance.json nowhere.json"), "nowhere.json: cannot be read: No such file"),
    "plan_batch_0": (
        plan("gpus.0.slices.0.replicas.0.batch", 0),
        "plan.json: gpus[0].slices[0].replicas[0].batch",
    ),
    "plan_batch_huge": (
        plan("gpus.0.slices.0.replicas.0.batch", 10**400),
        "replicas[0].batch: should be less than",
    ),
    "plan_rate_nan": (plan("gpus.0.slices.0.replicas.0.rate_rps", NAN), "rate_rps: should be a finite number"),
    "plan_share": (plan("gpus.0.slices.0.replicas.0.sm_share", 2), "sm_share: should be less than or equal to 1"),
    "plan_start": (plan("gpus.0.slices.0.start", "0"), "gpus[0].slices[0].start: should be a valid integer"),
    "plan_mig_text": (plan("gpus.0.mig", "on"), "gpus[0].mig: should be a valid boolean"),
    "plan_unknown": (plan("gpus.0.slices.0.colour", "red"), "gpus[0].slices[0].colour: unknown field"),
    "plan_shown": (command("show instance.json"), "instance.json: is an instance; give a plan"),
    "show_exists": (command("show plan.json --png plan.json"), "plan.json: pictures are PNG or SVG"),
    "show_picture_kind": (command("show plan.json --png plan.txt"), "end the name in .png or .svg"),
    "show_same_name": (command("show plan.json --png a.png --html a.png"), "named by --png and by --html"),
    # The command line.
    "verb_unknown": (command("slove instance.json"), "slove"),
    "option_unknown": (command("solve instance.json --quick"), "--quick"),
    "method_unknown": (command("solve instance.json --method magic"), "unknown method 'magic'; `provision methods`"),
    "serve_workers": (command("serve --workers 0"), "--workers"),
    "serve_port": (command("serve --port 70000"), "--port"),
    "methods_unknown": (command("compare instance.json --methods greedy,magic"), "unknown method 'magic'"),
    "methods_none": (command("compare instance.json --methods ,"), "--methods: is empty"),
    "set_no_value": (command("solve instance.json --set solver"), "--set: write it as NAME=VALUE (got 'solver')"),
    "set_unknown": (command("solve instance.json --set speed=9"), "has no parameter 'speed'; it has: slack"),
    "set_reserved": (command("solve instance.json --set seed=1"), "has no parameter 'seed'"),
    "set_solver": (
        command("solve instance.json --method assignment-milp --set solver=X"),
        "solver 'X' is not there",
    ),
    "time_zero": (command("solve instance.json --time-limit 0"), "--time-limit: should be above 0 (got '0')"),
    "time_nan": (command("solve instance.json --time-limit nan"), "--time-limit: should be a number (got 'nan')"),
    "time_negative": (command("solve instance.json --time-limit -1"), "--time-limit: should be above 0 (got '-1')"),
    "time_infinite": (
        command("compare instance.json --time-limit inf"),
        "--time-limit: should be a number (got 'inf')",
    ),
    "time_endless": (
        command("solve instance.json --time-limit 1e9"),
        "--time-limit: should be at most 1e+07",
    ),
    "time_text": (command("solve instance.json --time-limit soon"), "--time-limit"),
    "seed_text": (command("solve instance.json --seed x"), "--seed"),
    "out_exists": (
        command("solve instance.json --out plan.json"),
        "plan.json: exists already; choose another name or",
    ),
    "out_folder": (command("solve instance.json --out . --force"), ".: is a folder; name a file in it"),
    "out_under_file": (
        command("solve instance.json --out plan.json/x.json"),
        "plan.json is no folder that you may",
    ),
    "out_long": (command(f"solve instance.json --out {'x' * 5000}"), "cannot be written: File name too long"),
    # Imports.
    "import_nothing": (command("import parvagpu . --out out.yaml"), ".: no prof_data/*.csv in there"),
    "import_format": (command("import magic . --out out.yaml"), "magic"),
    "import_row_0": (tables(row=0), "--slo-row 0: "),
    "import_row_high": (tables(row=2), "has rows 1 to 1; choose one of these"),
    "import_column": (tables(header="a,b,c,d,e"), "resnet50.csv: column 'Mig instance' is missing; it has a, b"),
    "import_text": (tables("1,1,1,fast,0.02"), "resnet50.csv:2: Throughput 'fast' is not a number"),
    "import_short": (tables("1,1,1"), "resnet50.csv:2: Throughput None is not a number"),
    "import_nan": (tables("1,1,1,nan,0.02"), "Throughput 'nan' must be finite"),
    "import_infinite": (tables("1,1,5,1e308,0.02"), "resnet50.csv: "),
    "import_fraction": (tables("1,1.5,1,50,0.02"), "Batch size '1.5' is not a whole number"),
    "import_batch_0": (tables("1,0,1,50,0.02"), "resnet50.csv: points[0][1]: should be greater than"),
    "import_size": (tables("5,1,1,50,0.02"), "Mig instance 5 is no A100 size; use 1, 2, 3, 4 or 7"),
    "import_zeros": (tables("1,1,1,0,0"), "resnet50.csv: no row with a throughput and a latency above 0"),
    "import_deep": (
        ({"deep.jsonl": '{"a": ' * 100_000}, "import igniter deep.jsonl --out out.yaml"),
        "deep.jsonl:1: nested too deeply",
    ),
    "import_noise": (
        ({"noise.jsonl": bytes(range(256))}, "import igniter noise.jsonl --out out.yaml"),
        "noise.jsonl: not a text file",
    ),
    "import_twice": (
        tables("1,1,1,50,0.02\n1,1,1,60,0.02"),
        "points measured twice: 1g.10gb, batch 1, 1 processes",
    ),
    "import_no_rows": (tables(""), "resnet50.csv: has no rows below its header"),
    "import_na": (tables(slo="N/A", rate="N/A"), "SLO_latency.csv:1: no model has an SLO and a rate"),
    "import_slo_text": (tables(slo="fast"), "SLO_latency.csv:1: SLO or rate 'fast' is not a number"),
    "import_slo_small": (tables(slo="0.4"), "slo_ms: should be greater than 0"),
    "import_columns": (tables(slo="200,300"), "1 profiled models, 2 SLOs and 1 rates in row 1"),
    "import_safety": ((tables()[0], tables()[1] + " --safety nan"), "argument --safety: should be a number"),
    "import_price": ((tables()[0], tables()[1] + " --price inf"), "argument --price: should be a number"),
    "map_column": (deployment("", header="a,b"), "map.csv: column 'Num instance' is missing"),
    "map_empty": (deployment(""), "map.csv: has no rows below its header"),
    "map_model": (deployment("0,0,gpt,0,1,8,1"), "map.csv:2: Model 'gpt' is no workload of tiny; there are a"),
    "map_short": (deployment("0,0"), "map.csv:2: Model '' is no workload of tiny"),
    "map_text": (deployment("0,0,a,left,1,8,1"), "map.csv:2: Placement 'left' is not a number"),
    "map_batch_0": (deployment("0,0,a,0,1,0,1"), "map.csv:2: batch: should be greater than or equal to 1 (got 0)"),
    "map_binary": (
        (as_json(INSTANCE) | {"map.csv": bytes(range(256))}, deployment("")[1]),
        "map.csv: not a text file",
    ),
}


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Write files below a fresh working folder."""
    monkeypatch.chdir(tmp_path)

    def write(files):
        for name, content in files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def run(line):
    """Exit code of a command line."""
    try:
        return main(line.split())
    except SystemExit as stop:
        return stop.code


@pytest.mark.parametrize(("made", "words"), CASES.values(), ids=CASES.keys())
def test_one_line_and_exit_2(made, words, at, capsys):
    """Input that cannot be used gives exit 2, a line of bounded length per problem on stderr, nothing on stdout."""
    files, line = made
    at(files)
    code = run(line)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.endswith("\n") and words in err
    lines = err.splitlines()
    assert 1 <= len(lines) <= 11
    assert all(line.startswith("error: ") and len(line) < 1200 and line.isprintable() for line in lines)
    assert not Path("out.yaml").exists() and not Path("out.json").exists()


ONE = [A100 | {"count": 1}]
UNMET = {
    "slo_too_short": (instance("workloads.0.slo_ms", 0.5), "workload a: no slice meets slo_ms 0.5"),
    "slo_in_seconds": (instance("workloads.0.slo_ms", 0.5), "or more would work (0.5 s are slo_ms 500)"),
    "slo_tiny": (instance("workloads.0.slo_ms", 1e-300), "or more would work"),
    "fleet_too_small": (two("fleet", ONE, "workloads.0.rate_rps", 1e5), "of what is asked would fit"),
    "fleet_of_none": (fleet(A100 | {"count": 0}), "the fleet has too few GPUs"),
    "share_needs_more": (two("fleet", ONE, "workloads.0.max_share_per_gpu", 0.3), "GPUs are needed"),
    "replicas_need_more": (two("fleet", ONE, "workloads.0.min_replicas", 20), "the fleet has too few GPUs"),
}


@pytest.mark.parametrize(("made", "words"), UNMET.values(), ids=UNMET.keys())
def test_infeasible_and_exit_1(made, words, at, capsys):
    """What no plan can meet is infeasible, exit 1, with what stands in the way and what would work."""
    files, line = made
    at(files)
    assert run(f"{line} --json") == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["status"] == "infeasible" and err == ""
    assert words in found["reason"]
    assert found["objective"] is None and found["gpus"] is None and found["plan_file"] is None


EXTREME = {
    "rate_0": instance("workloads.0.rate_rps", 0),
    "rate_0_spread": two("workloads.0.rate_rps", 0, "workloads.0.max_share_per_gpu", 0.5),
    "rate_least": instance("workloads.0.rate_rps", 1e-9),
    "slo_huge": instance("workloads.0.slo_ms", 1e300),
    "no_replicas": two("workloads.0.rate_rps", 0, "workloads.0.min_replicas", 0),
    "price_0": fleet(A100 | {"price_per_hour": 0}),
}


@pytest.mark.parametrize("made", EXTREME.values(), ids=EXTREME.keys())
def test_extreme_but_good(made, at, capsys):
    """Extreme values that mean something are planned like any other."""
    files, line = made
    at(files)
    assert run(f"{line} --json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "optimal" and found["verified"]
