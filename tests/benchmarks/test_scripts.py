"""Every script under ``benchmarks/`` starts and ends well on its smallest case."""

import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import run

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "benchmarks"
SAMPLES = ROOT / "tests/data"
SHARED = ROOT.parent / "shared/data"
CASES = {
    "applier/day.py": "--applies 3",
    "applier/end_to_end.py": "--models paced --seconds 1",
    "applier/interleavings.py": "--schedules 10 --workers 1",
    "agreement.py": "--instances 1 --time-limit 1 --workers 1",
    "combinations.py": "--method greedy --only 'MIG, half_slo, own, min_gpus' free --workloads 4 --cpu --results {out}",
    "faults.py": "--sample 1 --workers 1",
    "few_points.py": "{samples}/parvagpu",
    "fit_colocation.py": "{shared}/igniter/v100_solo.csv {shared}/igniter/v100_pairs.csv "
                         "{shared}/igniter/v100_profile.jsonl --out {out}/data.yaml",
    "fit_gpulets.py": "{shared}/gpulets --out {out}/data.yaml",
    "fit_igniter.py": "{shared}/igniter/v100_profile.jsonl {shared}/igniter/v100_solo.csv "
                      "{shared}/igniter/v100_pairs.csv --out {out}",
    "fits/fit_inss.py": "--out {out}",
    "fit_operators.py": "{samples}/operators --out {out}/operators.yaml",
    "fit_parvagpu.py": "{samples}/parvagpu --out {out}/data.yaml",
    "verification/gate.py": "--cases half_slo:0:1:1 throughput:0:1:1 scale:testbed-free:0 mixed:4:0 "
                            "--time-limit 0.5 --method greedy --out {out}/gate.jsonl",
    "fuzz.py": "--instances 1 --workers 1 --time-limit 1",
    "interference.py": "--sizes 3 --methods greedy --time-limit 1",
    "isolated.py": "--first 1 --time-limit 1",
    "moved.py": "inss-fit",
    "verification/bounds.py": "--only parvagpu-s1 --every 200 --limit 0.5 --results {out}",
    "verification/mutation.py": "geometry --sample 1 --seconds 1",
    "clusters/buying.py": "--cases a100:2 --time-limit 10 --results {out}",
    "clusters/conditions.py": "--first 1 --time-limit 3 --results {out}",
    "clusters/watch_day.py": "{shared}/demand/servegen/rates.csv --clients 4 --first 0 --windows 3 --limit 2 "
                             "--results {out}",
    "clusters/recommend.py": "--nodes 1 --limit 5 --results {out}",
    "clusters/openb.py": "{shared}/openb --seeds 42 --nodes 40",
    "scale.py": "greedy-s5x100 --cpu --results {out}",
    "servers.py": "{samples}/servers/experiments.csv {samples}/servers/measured.csv --results {out}",
    "size/workers.py": "--points 16 --workers 1",
    "size/again.py": "single-6 --seeds 1 --limit 1",
    "size/parts.py": "free-120 --limit 1 --results {out}",
    "size/peers.py": "--cases free-12 --methods pop-4 price-and-round --time-limit 1 --results {out}",
    "size/large.py": "--cases v100:12 --time-limit 2",
    "size/rationing.py": "--first 1 --time-limit 5 --results {out}",
    "size/isolated.py": "--cases distinct:22 --time-limit 5 --results {out}",
    "silicon_error.py": "{samples}/operators {samples}/operators/rows.csv --results {out}",
    "token_error.py": "{samples}/guidellm {samples}/guidellm",
    "token_speed.py": "--requests 1000",
    "transitions.py": "--states 1 --targets 1 --workers 1",
    "trust.py": "",
    "papers/assignment.py": "--instances parvagpu-s1 --methods assignment-cpsat --time-limit 5",
    "traffic/both_rules.py": "--families igniter --cases testbed-12 --methods greedy --rules half_slo --seconds 1",
    "papers/fit_veltair.py": "{samples}/veltair",
    "papers/gpulets_grid.py": "--scalings 0.5 --methods gpulets --every 1000 --jobs 1 --time-limit 1",
    "papers/gpulets_rates.py": "--settings 0.5:1.1 --first 1 --seconds 1 --seeds 0",
    "tokens/inferno.py": "{samples}/inferno",
    "papers/inss.py": "--states 1 --proven 0 --seconds 1 --time-limit 1",
    "papers/inss_training.py": "--episodes 1 --seeds 0",
    "papers/igniter_text.py": "{shared}/igniter/v100_solo.csv {shared}/igniter/v100_pairs.csv",
    "papers/inss_workflow.py": "--runs 1",
    "papers/interference_error.py": "{shared}/igniter/v100_solo.csv {shared}/igniter/v100_pairs.csv",
    "tokens/melange.py": "{shared}/llm/splitwise_perf_model.csv {samples}/azure-llm --rates 1 --first 1 --requests 100",
    "tokens/mlperf.py": "{shared}/mlperf_llm/v5.1.csv --first 1",
    "tokens/slices.py": "--results {out}",
    "papers/model_error.py": "{table}",
    "papers/pages.py": "--check",
    "papers/parvagpu_figures.py": "{samples}/parvagpu --times 1",
    "papers/systems.py": "--families igniter --methods igniter --time-limit 1 --seconds 1",
    "papers/two_waves.py": "--seeds 0 --factors 1",
    "papers/veltair.py": "--queries 10 --first 1 --parts guesses --seeds 0",
    "service/attacks.py": "--only nothing 'JSON, 40,000 keys, one twice' --part 0.05 --longest-s 60 --results {out}",
    "service/hostile.py": "--requests 10",
    "service/interrupted.py": "--runs 2 --at-once 1 --limit 1 --results {out}",
    "service/load.py": "--clients 1 --jobs 1 --method greedy",
    "traffic/bursts.py": "--cases 10",
    "traffic/certainty.py": "igniter-motivation --only half_slo --half-limit 1 --seconds 1 --seeds 1",
    "traffic/mlperf.py": "{samples}/mlperf/server.csv",
    "traffic/queue_sharpness.py": "--sizes 1 --processes 1 --turns 1",
    "traffic/replays.py": "--time-limit 1 --seconds 1 --instances parvagpu-s1",
    "traffic/simulator.py": "--requests 1000 --time-limit 1 --seconds 1 --instances parvagpu-s1",
    "verification/anytime.py": "parvagpu-s1 --limits 1 --cpu --results {out}",
    "verification/behind.py": "--instances 1 --limits 2 --only parvagpu",
    "verification/certificates.py": "parvagpu-s1 --time-limit 5",
    "verification/explained.py": "--time-limit 0.5 --results {out}",
    "verification/forged.py": "--kinds 'MIG slices' --instances 1 --results {out}",
    "verification/fresh.py": "--only 'no such combination' --workers 1",
    "verification/independent.py": "--instances 1 --wide 1 --time-limit 1",
    "verification/interruptions.py": "--runs 1 --at-once 1 --limit 3",
    "verification/mixed_fleets.py": "--fleets 1 --time-limit 1",
    "verification/relations.py": "--instances 1 --each 1 --time-limit 1",
    "verification/sweeps.py": "--instances 1 --time-limit 0.3 --results {out}",
    "verification/told.py": "--instances 1 --requests 8000 --time-limit 1 --results {out}",
    "verification/small.py": "--draws 1 --seed 3 --time-limit 2",
}
"""By script: the options of its smallest case."""
VERDICTS = {"verification/told.py"}
"""Scripts whose exit code 1 is a verdict, which replays as short as here do not decide."""
LIBRARIES = {"verification/mutation.py": "cosmic_ray", "papers/inss_training.py": "torch"}
"""What scripts need beside the package and what its tests need."""


def test_every_script_has_a_case():
    scripts = {str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.py") if "__main__" in path.read_text()}
    assert scripts == set(CASES)


@pytest.mark.parametrize("script", CASES)
def test_it_starts(script, tmp_path):
    options = CASES[script]
    if script in LIBRARIES and find_spec(LIBRARIES[script]) is None:
        pytest.skip(f"{LIBRARIES[script]} is not installed")
    if ("{shared}" in options or "{table}" in options) and not SHARED.is_dir():
        pytest.skip("the public data are not in shared/")
    if "{table}" in options:
        (tmp_path / "prof_data").mkdir()
        (tmp_path / "prof_data/resnet50.csv").symlink_to(SHARED / "parvagpu/prof_data/resnet50.csv")
    before = shipped()
    words = shlex.split(options.format(samples=SAMPLES, shared=SHARED, out=tmp_path, table=tmp_path))
    ran = run(SCRIPTS / script, words, tmp_path)
    assert ran.returncode in ((0, 1) if script in VERDICTS else (0,)), ran.stderr[-2000:]
    assert "Traceback" not in ran.stderr
    assert ran.stdout
    assert shipped() == before


def shipped():
    """When each file of data that ships and each result file was written: no run writes any unless told so."""
    return {path: path.stat().st_mtime_ns for folder in ("models", "instances", "benchmarks/results")
            for path in (ROOT / folder).rglob("*") if path.suffix in (".yaml", ".csv", ".json", ".npz")}
