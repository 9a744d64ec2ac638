"""``import operators`` and the one command from nothing to a plan."""

import json

import numpy as np
import pytest
import yaml
from operator_tables import write_tables

import provision
from provision.cli import main
from provision.models.base.errors import InputError
from provision.models.fitting.tokens import TYPICAL
from provision.models.hardware.gpu import gpu_type, gpus_in
from provision.models.performance.operators.compose import Iterations, Served, iteration_ms
from provision.models.performance.operators.decoder import decoder_of, shipped_decoder, shipped_decoders, shipped_name
from provision.models.performance.operators.servers import operator_gpu, shipped_operators, shipped_servers
from provision.models.performance.tokens.data import TokenModels
from provision.starting.described import Described, instance_described

LLAMA = {
    "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
GPT_OSS = {
    "num_hidden_layers": 36, "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "head_dim": 64,
    "num_key_value_heads": 8, "vocab_size": 201088, "num_local_experts": 128, "num_experts_per_tok": 4,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
}  # fmt: skip


def imported(folder, *options):
    """The content of the file that an import writes."""
    path = folder / "out.yaml"
    assert main(["import", "operators", *options, "--out", str(path), "--force"]) == 0
    return TokenModels.model_validate(yaml.safe_load(path.read_text()))


def test_public_configurations_give_the_shipped_dimensions():
    assert decoder_of(LLAMA) == shipped_decoder("llama-3.1-8b")
    assert decoder_of(GPT_OSS) == shipped_decoder("gpt-oss-120b")


@pytest.mark.parametrize(("changes", "message"), [
    ({"kv_lora_rank": 512}, "latent attention"), ({"hidden_size": "big"}, "hidden_size should be a number"),
    ({"vocab_size": 0}, "vocab_size should be a number")])
def test_other_configurations_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        decoder_of(LLAMA | changes)


def test_weights_of_shipped_models_are_what_their_names_say():
    for name, billions in (("llama-3.1-8b", 8.0), ("llama-3.1-70b", 70.5), ("llama-3.1-405b", 405.8),
                           ("qwen3-32b", 32.8), ("gpt-oss-120b", 116.8), ("mixtral-8x7b", 46.7),
                           ("qwen3-235b-a22b", 235.1)):
        assert shipped_decoders()[name].weights / 1e9 == pytest.approx(billions, rel=0.02), name


def test_groups_of_several_sizes_become_slices_of_a_node(tmp_path):
    data = imported(tmp_path, "--model", "llama-3.1-70b", "--gpu", "h100", "--tp", "2,4,8", "--precision", "fp8")
    slices = data.models["llama-3.1-70b"].slices
    assert data.gpu == "8xh100-80gb" and list(slices) == ["2gpu", "4gpu", "8gpu"]
    times = [one.iteration_ms(16, 16 * 1000) for one in slices.values()]
    assert times == sorted(times, reverse=True)
    assert [one.kv_tokens for one in slices.values()] == sorted(one.kv_tokens for one in slices.values())
    one = slices["4gpu"]
    assert one.bands.tpot.low < 1 < one.bands.tpot.high
    assert "matrix products" in one.origins["weights_ms"].source and one.origins["weights_ms"].band.high > 1


def test_mig_slices_have_their_part_of_a_gpu(tmp_path, capsys):
    options = "--model", "qwen3-1.7b", "--gpu", "h100"
    (whole,) = imported(tmp_path, *options).models["qwen3-1.7b"].slices.values()
    assert "extrapolated" not in capsys.readouterr().err
    data = imported(tmp_path, *options, "--slices", "1g.10gb,2g.20gb,7g.80gb")
    assert "operator times of whole GPUs" in capsys.readouterr().err
    small, middle, large = data.models["qwen3-1.7b"].slices.values()
    assert data.gpu == "h100-80gb" and small.kv_tokens < middle.kv_tokens < large.kv_tokens
    assert small.bands.tpot.high == pytest.approx(1.5 * whole.bands.tpot.high)
    for sequences, context, prompt in ((1, 1000, 0), (64, 64000, 0), (0, 0, 4096)):
        times_ms = [one.iteration_ms(sequences, context, prompt, prompt**2 / 2)
                    for one in (small, middle, large, whole)]
        assert times_ms == sorted(times_ms, reverse=True)
    # Reading the weights takes an eighth of the bandwidth eight times as long; fixed times and those of software stay.
    assert 2 < small.iteration_ms(1, 1000) / whole.iteration_ms(1, 1000) < 8
    assert small.request_ms == whole.request_ms


def test_one_command_plans_a_small_model_on_slices(tmp_path, capsys):
    instance, plan = tmp_path / "instance.yaml", tmp_path / "plan.json"
    assert main(["solve", "--model", "qwen2.5-0.5b", "--rate", "2", "--isl", "256", "--osl", "16", "--ttft", "2000",
                 "--tpot", "100", "--gpus", "h100", "--slices", "1g.10gb,2g.20gb", "--no-replay", "--instance-out",
                 str(instance), "--out", str(plan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["configurations"]
    assert {one["group"] for one in found} <= {"1g.10gb", "2g.20gb"} and {one["gpus"] for one in found} == {1}
    assert main(["verify", str(instance), str(plan)]) == 0


@pytest.mark.parametrize(("options", "message"), [
    (("--slices", "2g.21gb"), "did you mean '2g.20gb'"), (("--slices", "2g.20gb", "--tp", "2"), "leave --tp out"),
    (("--slices", "1g.10gb"), "give larger ones"), (("--slices", "1g.10gb", "--gpu", "l40s"), "no profile '1g.10gb'")])
def test_slices_that_do_not_exist_or_are_too_small_are_refused(options, message, tmp_path, capsys):
    base = "import", "operators", "--model", "qwen3-8b", "--gpu", "h100"
    assert main([*base, *options, "--out", str(tmp_path / "out.yaml")]) == 2
    assert message in capsys.readouterr().err


def test_groups_that_the_weights_fill_are_left_out(tmp_path, capsys):
    data = imported(tmp_path, "--model", "llama-3.1-70b", "--gpu", "h100", "--tp", "1,2,4,8")
    assert list(data.models["llama-3.1-70b"].slices) == ["2gpu", "4gpu", "8gpu"]
    assert "left out: llama-3.1-70b in bfloat16 leaves no room for KV cache on 1 h100-80gb" in capsys.readouterr().err


def test_the_fewest_gpus_that_hold_a_model_are_the_default(tmp_path):
    assert imported(tmp_path, "--model", "llama-3.1-8b", "--gpu", "l40s").gpu == "l40s"
    assert imported(tmp_path, "--model", "llama-3.1-70b", "--gpu", "a100").gpu == "2xa100-80gb"


def test_a_mixture_of_experts_says_what_its_experts_take(tmp_path):
    one = imported(tmp_path, "--model", "gpt-oss-120b", "--gpu", "h100", "--precision", "mxfp4", "--tp", "2"
                   ).models["gpt-oss-120b"].slices["2gpu"]
    assert one.experts_ms > 0 and 0 < one.active_part < 0.5


def test_heads_of_other_sizes_are_extrapolated_and_say_so(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"head_dim": 96}))
    usual = imported(tmp_path, "--model", "llama-3.1-8b", "--gpu", "h100").models["llama-3.1-8b"].slices["whole"]
    capsys.readouterr()
    odd = imported(tmp_path, "--model", "odd", "--config", str(tmp_path / "config.json"), "--gpu", "h100")
    assert "extrapolated: heads of 96" in capsys.readouterr().err
    bands = odd.models["odd"].slices["whole"].bands
    assert bands.ttft.high > usual.bands.ttft.high and bands.source.endswith("extrapolated")


def test_a_copy_of_the_tables_is_taken_in_place_of_what_ships(tmp_path):
    tables = write_tables(tmp_path / "tables")
    data = imported(tmp_path, "--model", "llama-3.1-8b", "--gpu", "h100", "--tables", str(tables))
    assert "0.0.0" in data.source


@pytest.mark.parametrize(("options", "message"), [
    (["--model", "llama-9", "--gpu", "h100"], "its dimensions do not ship"),
    (["--model", "llama-3.1-8b", "--gpu", "t4"], "no operator times of it"),
    (["--model", "llama-3.1-8b", "--gpu", "a100", "--precision", "fp8"], "--precision fp8: no operator times"),
    (["--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "mxfp4"], "--precision mxfp4: no operator times"),
    (["--model", "llama-3.1-8b", "--gpu", "h100", "--precision", "fp3"], "--precision fp3: no operator times"),
    (["--model", "llama-3.1-405b", "--gpu", "l40s"], "its weights take"),
    (["--model", "llama-3.1-70b", "--gpu", "h100", "--tp", "1"], "leaves no room for KV cache"),
    (["--model", "llama-3.1-8b", "--gpu", "h100", "--tp", "3"], "--tp 3: give 1, 2, 4 or 8"),
    (["--model", "llama-3.1-8b", "--gpu", "h100", "--server", "llamacpp"], "nothing was fitted to it"),
    (["--model", "llama-3.1-8b", "--gpu", "h100", "--config", "none.json"], "cannot be read as JSON")])
def test_what_is_not_known_is_refused(options, message, tmp_path, capsys):
    assert main(["import", "operators", *options, "--out", str(tmp_path / "out.yaml")]) == 2
    assert message in capsys.readouterr().err


def test_laws_ship_for_every_gpu_type_that_is_named(tmp_path):
    assert operator_gpu("h100") == "h100-80gb" and "l40s" in shipped_operators() and "vllm" in shipped_servers()


@pytest.mark.parametrize(("options", "message"), [
    (["--gpus", ","], "--gpus ,: name at least one GPU type"),
    (["--gpus", "h100", "--tp", "3"], "--tp 3: give 1, 2, 4 or 8"),
    (["--gpus", "h100", "--rate", "-1"], "--rate: should be above 0 (got '-1')")])
def test_careless_options_of_a_first_plan_are_refused(options, message, capsys):
    given = ["--model", "llama-3.1-8b", "--rate", "20", "--isl", "512", "--osl", "64", "--ttft", "500", "--tpot", "60"]
    assert main(["solve", *given, *options]) == 2
    assert message in capsys.readouterr().err


def test_one_command_chooses_the_number_of_gpus_per_replica():
    """Where one GPU holds the weights and a request, and two or more serve many."""
    asked = Described(model="llama-3.1-70b", precision="fp8", rate=20, isl=2000, osl=300, ttft=1500, tpot=50,
                      gpus="h100")
    instance, _ = instance_described(asked)
    assert [one.gpu for one in instance.fleet] == ["h100-80gb", "2xh100-80gb", "4xh100-80gb", "8xh100-80gb"]
    asked = asked.model_copy(update={"precision": "bfloat16", "gpus": "h100,h200"})
    assert [one.gpu for one in instance_described(asked)[0].fleet][:4] == [
        "2xh100-80gb", "4xh100-80gb", "8xh100-80gb", "2xh200-141gb"]
    found = provision.solve(instance, "greedy", 20, replay=False)
    assert found.verified and gpus_in(gpu.gpu for gpu in found.plan.gpus) < 100


def test_a_price_may_be_ones_own_per_gpu():
    asked = Described(model="llama-3.1-8b", rate=20, isl=512, osl=64, ttft=500, tpot=60, gpus="h100", price="2.5")
    found = {one.gpu: one.price_per_hour for one in instance_described(asked)[0].fleet}
    assert found == {gpu: 2.5 * gpu_type(gpu).gpus for gpu in found} and len(found) > 1
    with pytest.raises(InputError, match="price_per_hour"):
        instance_described(asked.model_copy(update={"price": "-1"}))


def test_one_command_gives_a_plan_that_holds(tmp_path, capsys):
    instance, plan = tmp_path / "instance.yaml", tmp_path / "plan.json"
    code = main(["solve", "--model", "llama-3.1-8b", "--rate", "20", "--isl", "512", "--osl", "64", "--ttft", "500",
                 "--tpot", "60", "--gpus", "h100,l40s", "--no-replay", "--instance-out", str(instance), "--out",
                 str(plan), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0 and answer["verified"]
    assert main(["verify", str(instance), str(plan)]) == 0


@pytest.mark.parametrize(("options", "message"), [
    ([], "name an INSTANCE, or describe one"),
    (["parvagpu-s1", "--model", "llama-3.1-8b"], "not both"),
    (["--model", "llama-3.1-8b", "--rate", "20"], "add --isl, --osl, --gpus"),
    (["--model", "llama-3.1-8b", "--rate", "20", "--isl", "10", "--osl", "10", "--gpus", "h100"],
     "add --ttft and --tpot"),
    (["--model", "llama-3.1-8b", "--rate", "-1", "--isl", "10", "--osl", "10", "--gpus", "h100", "--ttft", "1",
      "--tpot", "1"], "--rate: should be above 0 (got '-1')")])
def test_one_command_says_what_is_missing(options, message, capsys):
    assert main(["solve", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("given", "name"), [
    ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("Qwen/Qwen3-14B", "qwen3-14b"),
    ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama-4-scout-17b-16e"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"), ("codellama/CodeLlama-34b-hf", "codellama-34b"),
    ("llama2-70b", "llama-2-70b"), ("Llama-3.1-9B", None), ("", None),
])
def test_models_may_be_named_as_their_publishers_do(given, name):
    assert shipped_name(given) == name


def test_names_of_decoders_differ_in_essence():
    assert all(shipped_name(one.upper()) == one for one in shipped_decoders())


def test_a_shared_expert_takes_weights_and_time():
    scout = shipped_decoder("llama-4-scout-17b-16e")
    without = scout.model_copy(update={"shared_mlp": 0})
    assert scout.weights == pytest.approx(107.8e9, rel=0.01) and scout.weights > without.weights
    given = Iterations(np.array([8.0]), np.array([500.0]), np.array([0.0]), np.array([0.0]))
    times_ms = [iteration_ms(Served(one, shipped_operators()["h100-80gb"], 8, "fp8"), given)[0]
                for one in (without, scout)]
    assert times_ms[0] < times_ms[1]


def test_what_a_servers_software_adds():
    """A mixture has time of its own for every layer; launching is a bound, not a sum; Dynamo delays first tokens."""
    software = shipped_servers()["vllm"].model_copy(update={"mixture_ms": 0.05, "launch_ms": 0.5})
    dense, mixture = shipped_decoder("llama-3.1-8b"), shipped_decoder("gpt-oss-20b")
    costs = TYPICAL._replace(launch=0.0)
    plain, mixed = (software.around(costs, one, 1) for one in (dense, mixture))
    assert mixed.step - plain.step == pytest.approx(0.05 * mixture.layers)
    assert plain.launch == pytest.approx(0.5 * dense.layers)
    behind = shipped_servers()["dynamo-vllm"].around(costs, dense, 1)
    assert behind.delivery > shipped_servers()["vllm"].around(costs, dense, 1).delivery + 10
