"""The fit of co-location on made-up measurements with known coefficients, its command, and few real measurements."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from provision.cli import main
from provision.instances.importers.pairs import BESIDE, read_alone, read_beside
from provision.instances.read import read
from provision.models.base.errors import InputError
from provision.models.fitting.colocation import (
    Pairs,
    errors,
    fit,
    kept_apart,
    pair_key,
    predicted_ms,
)
from provision.models.fitting.waves import SoloRuns, fit_solo
from provision.models.performance.catalogue import load_performance
from provision.models.performance.colocation import ColocatedModel, Colocation, SoloTime, Wave, solo_ms

MEASURED = Path(__file__).resolve().parents[4] / "shared/data/igniter"
NEEDS_TABLES = pytest.mark.skipif(
    not (MEASURED / "v100_pairs.csv").exists(), reason="iGniter's measured pairs are not in shared/"
)
BATCHES, SHARES = (1, 2, 4, 8, 16, 32), (0.2, 0.4, 0.5, 0.6, 0.8)
SPLITS = ((0.2, 0.8), (0.4, 0.6), (0.5, 0.5), (0.8, 0.2))


def model(scale, stretch, wait_ms, base, load):
    """A made-up model with one size of wave."""
    solo = SoloTime(
        fixed_ms=0.2 * scale, request_ms=0.05 * scale, fixed_work_ms=0.0, request_work_ms=0.1 * scale,
        waves=(Wave(sms_per_request=20.0, ms=0.3 * scale),),
    )
    return ColocatedModel(
        solo=solo, stretch=stretch, wait_ms=wait_ms, base_demand=base, load_demand=load, overlap_ms=0.01 * scale
    )


TRUTH = Colocation(
    version=1, name="truth", kind="colocation", gpu="v100", unit_share=0.025, max_batch=32, half_load_batch=16.0,
    models={
        "one": model(1.0, (0.1, 0.2), (0.0, 0.1), (0.5, 0.1), (0.2, 0.3)),
        "two": model(3.0, (0.2, 0.1), (0.5, 0.0), (0.1, 0.3), (0.4, 0.7)),
        "three": model(8.0, (0.15, 0.15), (0.2, 0.3), (0.3, 0.4), (0.5, 0.1)),
    },
)


def made_runs():
    """The made-up models alone."""
    batch, share = (axis.ravel() for axis in np.meshgrid(np.array(BATCHES, float), SHARES, indexing="ij"))
    found = {}
    for name, one in TRUTH.models.items():
        alone_ms = solo_ms(TRUTH, name, batch, share)
        found[name] = SoloRuns(batch, share, alone_ms, 1000 * batch / (alone_ms - one.overlap_ms * batch))
    return found


def made_pairs():
    """The made-up models side by side, in every combination, each also with itself."""
    names, batches = list(TRUTH.models), (2, 8, 32)
    rows = [
        ((one, other), pair, split)
        for at, one in enumerate(names) for other in names[at:]
        for pair, split in product(product(batches, batches), SPLITS)
    ]
    model, batch, share = (np.array(column) for column in zip(*rows, strict=True))
    pairs = Pairs(model, batch.astype(float), share, np.ones(batch.shape))
    return pairs._replace(latency_ms=predicted_ms(TRUTH, pairs))


@pytest.fixture(scope="module")
def made():
    return made_runs(), made_pairs()


@pytest.fixture
def tables(tmp_path, made):
    """Both tables as files."""
    runs, pairs = made
    alone = ["model,batch,share_percent,latency_ms,throughput_rps"] + [
        f"{name},{int(batch)},{100 * share:g},{latency!r},{rate!r}"
        for name, one in runs.items()
        for batch, share, latency, rate in zip(*map(np.ndarray.tolist, one), strict=True)
    ]
    beside = [",".join(BESIDE)] + [
        f"{a},{int(x)},{b},{int(y)},{100 * s:g},{t!r},{100 * u:g},{v!r}"
        for (a, b), (x, y), (s, u), (t, v) in zip(*map(np.ndarray.tolist, pairs), strict=True)
    ]
    paths = tmp_path / "alone.csv", tmp_path / "beside.csv"
    for path, lines in zip(paths, (alone, beside), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return paths


def test_times_alone_are_found_between_measurements(made):
    solo = fit_solo(made[0]["two"], TRUTH.sms)
    for batch, share in ((3, 0.5), (12, 0.3), (24, 0.8)):
        assert solo.ms(batch, share, 80) == pytest.approx(TRUTH.models["two"].solo.ms(batch, share, 80), rel=0.06)


def test_a_fit_predicts_pairs_that_it_has_not_seen(made):
    runs, pairs = made
    apart = kept_apart(pairs)
    found = fit(runs, pairs.take(~apart), "v100", name="made")
    assert errors(found, pairs.take(apart)).mean() < 0.003
    assert len(found.fitted_pairs) == np.sum(~apart) and not set(found.fitted_pairs) & set(pairs.take(apart).keys)


def test_overlap_comes_from_throughput_where_it_was_measured(made):
    runs, pairs = made
    assert fit(runs, pairs, "v100", name="made").models["two"].overlap_ms == pytest.approx(0.03)
    without = {name: one._replace(throughput_rps=np.full(len(one.batch), np.nan)) for name, one in runs.items()}
    assert fit(without, pairs, "v100", name="made").models["two"].overlap_ms == 0


def test_keys_tell_configurations_apart_and_not_their_order():
    key = pair_key(["one", "two"], [2, 4], [0.2, 0.8])
    assert key == pair_key(["two", "one"], [4.0, 2.0], [0.8, 0.2])
    assert key != pair_key(["one", "two"], [4, 2], [0.2, 0.8]) and key != pair_key(["one", "two"], [2, 4], [0.8, 0.2])


def test_models_must_be_alone_and_in_pairs(made):
    runs, pairs = made
    with pytest.raises(InputError, match="two: is in a pair but was not measured alone"):
        fit({name: one for name, one in runs.items() if name != "two"}, pairs, "v100", name="x")
    with pytest.raises(InputError, match="three: is in no pair"):
        fit(runs, pairs.take((pairs.model != "three").all(axis=1)), "v100", name="x")


def test_the_command_writes_data_that_an_instance_can_name(tables, tmp_path, capsys):
    alone, beside = map(str, tables)
    out = tmp_path / "made.yaml"
    assert main(["fit", alone, "--format", "colocation", "--pairs", beside, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overall"]["mean"] < 0.003 and found["pairs_fitted"] + found["pairs_judged"] == len(made_pairs().batch)
    instance = tmp_path / "instance.yaml"
    instance.write_text(
        "version: 1\nname: x\npolicy: {latency_budget: half_slo}\nfleet: [{gpu: v100}]\nperformance: ./made.yaml\n"
        "workloads: [{name: w, model: two, slo_ms: 50, rate_rps: 10}]\n"
    )
    [data] = read(str(instance)).performance
    assert data.kind == "colocation" and data.models["two"].pair_error.mean < 0.003
    assert main(["fit", alone, "--format", "colocation", "--pairs", beside]) == 0
    assert "fitted to" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "give the table of models side by side, --pairs F"),
        (["--pairs", "{beside}", "--points", "4"], "--points is for profile tables"),
        (["--pairs", "{beside}", "--gpu", "v1000"], "v1000"),
        (["--pairs", "{alone}"], "column 'model_a' is missing"),
    ],
)
def test_bad_options_are_one_line(tables, capsys, arguments, message):
    alone, beside = map(str, tables)
    given = [one.format(alone=alone, beside=beside) for one in arguments]
    assert main(["fit", alone, "--format", "colocation", *given]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "row, message",
    [
        ("one,2,two,2,20,1.0,90,2.0", ":2: the shares of a pair exceed 100 percent"),
        ("one,2,two,2,20,0,80,2.0", ":2: latency_a_ms is 0"),
        ("one,2.5,two,2,20,1,80,2.0", ":2: batch_a '2.5' is not a whole number"),
        ("one,2,,2,20,1,80,2.0", ":2: model_b is empty"),
        ("one,2,two,2,120,1,80,2.0", ":2: share_a_percent '120' is above 100"),
        ("one,2,two,2,20,fast,80,2.0", ":2: latency_a_ms 'fast' is not a number"),
    ],
)
def test_bad_rows_are_one_line(tmp_path, row, message):
    path = tmp_path / "beside.csv"
    path.write_text(f"{','.join(BESIDE)}\n{row}\n")
    with pytest.raises(InputError, match=message):
        read_beside(str(path))


def test_options_for_colocation_are_refused_elsewhere(tables, capsys):
    assert main(["fit", str(tables[0].parent), "--pairs", str(tables[1])]) == 2
    assert "--pairs is for --format colocation" in capsys.readouterr().err


@NEEDS_TABLES
def test_few_measurements_do():
    """Eleven configurations alone and ten pairs per model, drawn at random, predict all other pairs within 3 %."""
    wanted = [(1, 20), (1, 80), (2, 40), (4, 20), (4, 60), (8, 50), (8, 80), (16, 40), (32, 20), (32, 50), (32, 80)]
    runs = {
        name: one.take([(batch, round(100 * share)) in wanted for batch, share in zip(*one[:2], strict=True)])
        for name, one in read_alone(str(MEASURED / "v100_solo.csv")).items()
    }
    assert {len(one.batch) for one in runs.values()} == {11}
    pairs = read_beside(str(MEASURED / "v100_pairs.csv"))
    for seed in range(3):
        chosen = ten_each(pairs, np.random.default_rng(seed))
        assert np.unique(pairs.take(chosen).model, return_counts=True)[1].max() <= 10
        few = fit(runs, pairs.take(chosen), "v100", name="few")
        assert errors(few, pairs.take(~chosen)).mean() < 0.03


def ten_each(pairs, draw):
    """A mask of pairs drawn so that no model is in more than ten, and no combination in more than four."""
    mask, used = np.zeros(len(pairs.batch), bool), {}
    for at in draw.permutation(len(mask)):
        names = pairs.model[at].tolist()
        limits = {name: 10 for name in names} | {frozenset(names): 4}
        if all(used.get(key, 0) < most for key, most in limits.items()):
            mask[at] = True
            used |= {key: used.get(key, 0) + 1 for key in limits}
    return mask


def test_shipped_data_has_errors_and_provenance():
    shipped = load_performance("colocation-v100")
    assert shipped.command and shipped.fitted and "igniter" in shipped.source
    assert all(one.pair_error.mean < 0.025 and one.solo_error.mean < 0.015 for one in shipped.models.values())
