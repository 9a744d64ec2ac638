"""InSS: eq. 2 against played arrivals, Algorithm 1 against the verifier and brute force, the shipped policy."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import provision
from provision.heuristics.inss import inss
from provision.heuristics.inss.batches import decide_batches
from provision.heuristics.inss.policy import LEVELS, TrainedPolicy, packed, read_policy, trained_for
from provision.heuristics.inss.system import Provisioning, System, filled
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.performance.operating_points import Member
from provision.models.traffic.task_latency import task_latency_ms

SHIPPED = Path(inss.__file__).parent / "data" / "inss.npz"
INSTANCE = provision.read("inss")
SYSTEM = System(INSTANCE)
places = st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, LEVELS - 1))] * SYSTEM.workloads)
parts = st.tuples(*[st.floats(0.05, 1.5)] * SYSTEM.workloads)


def played(batch, rate_rps, batch_ms, count):
    """(queued, running_ms, latency_ms) of tasks that arrive evenly at a process that takes full batches alone."""
    arrivals = 1000 / rate_rps * np.arange(1, count * batch + 1)
    ends, end = [], 0.0
    for full in arrivals[batch - 1 :: batch]:
        end = max(end, full) + batch_ms
        ends.append(end)
    starts = np.array(ends) - batch_ms
    for at, now in enumerate(arrivals):
        begun = np.flatnonzero(starts < now - 1e-9)
        running = max(0.0, ends[begun[-1]] - now) if len(begun) else 0.0
        yield at + 1 - batch * len(begun), running, ends[at // batch] - now


@given(st.integers(1, 6), st.floats(10, 1000), st.floats(0.5, 200))
def test_task_latency_is_that_of_played_arrivals(batch, rate_rps, batch_ms):
    """Whoever waits for the batch to fill, and whoever stands behind a backlog that never lets the process idle."""
    busy = batch_ms * rate_rps >= 1000 * batch
    assume(abs(batch_ms * rate_rps / 1000 - round(batch_ms * rate_rps / 1000)) > 1e-6)
    for queued, running_ms, latency_ms in played(batch, rate_rps, batch_ms, 12):
        if queued < batch or busy:
            found = task_latency_ms(queued, batch, rate_rps, batch_ms, running_ms)
            assert found == pytest.approx(latency_ms, rel=1e-6)


def test_a_batch_that_nothing_fills_never_starts():
    assert task_latency_ms(1, 2, 0.0, 5.0) == np.inf
    assert task_latency_ms(1, 1, 0.0, 5.0, 2.0) == 7


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=8))
def test_shares_fill_every_gpu_that_is_used(members):
    gpu, wishes = np.array(members).T[:, None]
    units = filled(gpu, wishes, 3, 40)
    for at in np.unique(gpu):
        on = gpu == at
        assert units[on].sum() == 40 and units[on].min() >= 1
        if wishes[on].sum() == 40:
            assert (units[on] == wishes[on]).all()


@settings(deadline=None, max_examples=60)
@given(places, parts)
def test_batches_that_are_found_hold_for_the_verifier(actions, rates):
    """Whatever Algorithm 1 calls satisfied is so with all the batches that it decides."""
    one = with_rates(rates)
    with TemporaryDirectory() as folder:
        result = provision.solve(one, "inss", policy=always(actions, Path(folder) / "policy.npz"))
    assert result.status == ("feasible" if result.report.ok else "unknown") and len(result.plan.gpus) <= 4
    if not result.report.ok:
        assert any(name in result.reason for name in one.workload)
        return
    batch = {replica.workload: replica.batch for *_, replica in result.plan.replicas()}
    for found in result.report.predictions:
        waits_ms = 1000 * (batch[found.workload] - 1) / found.rate_rps
        assert waits_ms + found.latency_ms <= one.workload[found.workload].slo_ms * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, SYSTEM.workloads - 1), st.integers(1, 40), st.floats(0.05, 3))
def test_alone_the_batch_is_the_largest_that_holds(index, units, part):
    """Brute force over all batches by the scalar model; where the search gives up, the half-way batch is too slow."""
    workload, others = INSTANCE.workloads[index], (index == np.arange(SYSTEM.workloads))[None]
    given = Provisioning(np.where(others, 0, 1), np.where(others, units, 5))
    rate_rps = part * workload.rate_rps
    batch, found = decide_batches(SYSTEM, given, np.full(others.shape, rate_rps), np.zeros(others.shape))
    holding, in_time = [], []
    for size in range(1, 33):
        latency_ms, rps, _ = SYSTEM.data.predict("whole", [Member(workload.model, size, 1, units * 0.025)])[0]
        late = 1000 * (size - 1) / rate_rps + latency_ms > workload.slo_ms or latency_ms > workload.slo_ms / 2
        in_time += [size] * (not late)
        holding += [size] * (not late and rps >= rate_rps)
    if found[0, index]:
        assert batch[0, index] == max(holding) == max(in_time)
    elif holding:
        assert min(holding) > 2 ** min(int(np.log2(max(in_time))), 4)


def always(actions, path):
    """Writes a policy that takes these actions whatever it sees; returns its path."""
    heads = np.zeros((SYSTEM.workloads, 4 + LEVELS))
    for head, (gpu, level) in zip(heads, actions, strict=True):
        head[gpu] = head[4 + level] = 1
    layers = ((np.zeros((heads.size, 2 * SYSTEM.workloads)), heads.ravel()),)
    path.write_bytes(packed(TrainedPolicy(trained_for(SYSTEM), layers)))
    return str(path)


def with_rates(rates):
    """The instance at parts of its rates."""
    workloads = [
        one.model_copy(update={"rate_rps": part * one.rate_rps})
        for one, part in zip(INSTANCE.workloads, rates, strict=True)
    ]
    return INSTANCE.replace(workloads=tuple(workloads))


def test_the_shipped_policy_serves_its_system():
    """At random states of the family; it is small."""
    assert SHIPPED.stat().st_size < 200 * 1024
    results = [provision.solve(provision.read(f"inss-seed{seed}"), "inss") for seed in range(20)]
    assert all(result.verified == (result.status == "feasible") for result in results)
    assert sum(result.verified for result in results) >= 19


def test_same_answer_again():
    first, second = (provision.solve(INSTANCE, "inss") for _ in range(2))
    assert first.plan == second.plan and first.parameters["policy"] == ""


@pytest.mark.parametrize("change", [
    dict(fleet=(INSTANCE.fleet[0].model_copy(update={"count": 5}),)), dict(workloads=INSTANCE.workloads[:7]),
    dict(workloads=tuple(one.model_copy(update={"slo_ms": 2 * one.slo_ms}) for one in INSTANCE.workloads)),
])
def test_other_systems_are_refused_with_the_remedy(change):
    with pytest.raises(UnsupportedError, match=r"not for inss; train one .* --set policy=F"):
        provision.solve(INSTANCE.replace(**change), "inss")


def test_other_objectives_are_refused():
    with pytest.raises(UnsupportedError, match="inss plans for max_throughput, not for min_gpus"):
        provision.solve(INSTANCE.replace(objective="min_gpus"), "inss")


@settings(deadline=None)
@given(st.data())
def test_files_that_are_no_policies_are_refused(data):
    """Cut short, or with bytes changed: an InputError, or a policy all the same."""
    content = bytearray(packed(TrainedPolicy(trained_for(SYSTEM), ((np.ones((192, 16)), np.ones(192)),))))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        path.write_bytes(content[:cut])
        try:
            assert read_policy(path).trained.models
        except InputError as error:
            assert "is no policy" in str(error) or "cannot be read" in str(error)


def test_weights_survive_their_file(tmp_path):
    rng = np.random.default_rng(0)
    layers = tuple((rng.normal(size=(out, into)), rng.normal(size=out)) for into, out in ((16, 30), (30, 192)))
    path = tmp_path / "policy.npz"
    path.write_bytes(packed(TrainedPolicy(trained_for(SYSTEM, episodes=3), layers)))
    policy = read_policy(path)
    assert policy.trained == trained_for(SYSTEM, episodes=3)
    for (weights, bias), (read, read_bias) in zip(layers, policy.layers, strict=True):
        assert np.abs(weights - read).max() <= np.abs(weights).max() / 254 + 1e-6
        assert read_bias == pytest.approx(bias)
