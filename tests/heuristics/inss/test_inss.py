"""InSS: eq. 2 against played arrivals, Algorithm 1 against the verifier and brute force, the shipped policy."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import provision
from provision.heuristics.inss import inss
from provision.heuristics.inss.batches import decide_batches, keeping
from provision.heuristics.inss.inss import regressed_ms
from provision.heuristics.inss.policy import LEVELS, TrainedPolicy, packed, provisioning, read_policy, trained_for
from provision.heuristics.inss.system import Judged, Provisioning, System, filled
from provision.models.base.errors import InputError, UnsupportedError
from provision.models.performance.igniter import solo_terms
from provision.models.performance.operating_points import Member
from provision.models.traffic.rules import task_latency_ms
from provision.sweeps.parameters import changed

SHIPPED = Path(inss.__file__).parent / "data" / "inss.npz"
INSTANCE = provision.read("inss")
SYSTEM, BY_DATA = System(INSTANCE), System(INSTANCE, judged=Judged.BY_DATA)
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
    units = filled(gpu, wishes, np.full(3, 40))
    for at in np.unique(gpu):
        on = gpu == at
        assert units[on].sum() == 40 and units[on].min() >= 1
        if wishes[on].sum() == 40:
            assert (units[on] == wishes[on]).all()


@settings(max_examples=60)
@given(places, parts)
def test_batches_that_are_found_hold_for_the_verifier(actions, rates):
    """Whatever Algorithm 1 calls satisfied is so with all the batches that it decides."""
    one = with_rates(rates)
    with TemporaryDirectory() as folder:
        result = provision.solve(one, "inss", policy=always(actions, Path(folder) / "policy.npz"))
    assert result.status in ("feasible", "unknown") and len(result.plan.gpus) <= 4
    assert result.status == "unknown" or result.report.ok
    if result.reason:  # of a feasible plan too, if it keeps the instance's rule and not InSS's own
        assert any(name in result.reason for name in one.workload)
        return
    batch = {replica.workload: replica.batch for *_, replica in result.plan.replicas()}
    for found in result.report.predictions:
        waits_ms = 1000 * (batch[found.workload] - 1) / found.rate_rps
        assert waits_ms + found.latency_ms <= one.workload[found.workload].slo_ms * (1 + 1e-9)


@settings(max_examples=60)
@given(st.integers(0, SYSTEM.workloads - 1), st.integers(1, 40), st.floats(0.05, 3))
def test_alone_the_batch_is_the_largest_that_holds(index, units, part):
    """Brute force over all batches by the scalar model; where the search gives up, the half-way batch is too slow."""
    workload, others = INSTANCE.workloads[index], (index == np.arange(SYSTEM.workloads))[None]
    given = Provisioning(np.where(others, 0, 1), np.where(others, units, 5))
    rate_rps = part * workload.rate_rps
    batch, found = decide_batches(BY_DATA, given, np.full(others.shape, rate_rps), np.zeros(others.shape))
    holding, in_time = [], []
    for size in range(1, 33):
        latency_ms, rps, *_ = SYSTEM.data[0].predict("whole", [Member(workload.model, size, 1, units * 0.025)])[0]
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
    assert all(result.verified for result in results if result.status == "feasible")
    # the data has a clock that falls with power, InSS has none
    assert sum(result.verified for result in results) >= 14


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


@given(st.data())
def test_files_that_are_no_policies_are_refused(data):
    """Cut short, or with bytes changed: an InputError, or a policy all the same."""
    pattern = bytearray(packed(TrainedPolicy(trained_for(SYSTEM), ((np.ones((192, 16)), np.ones(192)),))))
    for _ in range(data.draw(st.integers(0, 3))):
        pattern[data.draw(st.integers(0, len(pattern) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(pattern)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        path.write_bytes(pattern[:cut])
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


FULL_BATCHES = INSTANCE.with_policy(latency_budget="full_batches")


@settings(max_examples=2)
@given(st.permutations(range(8)), st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)))
def test_most_throughput_of_full_batches_is_that_of_brute_force(order, parts):
    """Two workloads on one GPU under eq. 2: every split of the units and every pair of batches."""
    workloads = tuple(
        INSTANCE.workloads[at].model_copy(update={"rate_rps": part * INSTANCE.workloads[at].rate_rps})
        for at, part in zip(order, parts, strict=False)
    )
    one = FULL_BATCHES.replace(workloads=workloads, fleet=(INSTANCE.fleet[0].model_copy(update={"count": 1}),))
    system, most = System(one, judged=Judged.BY_DATA), 0.0
    batch = np.stack(np.meshgrid(np.arange(1, 33), np.arange(1, 33)), axis=-1).reshape(-1, 2)
    nothing, rates = np.zeros(batch.shape), np.tile(system.rates_rps, (len(batch), 1))
    for units in range(1, 40):
        given_ = Provisioning(np.zeros_like(batch), np.tile([units, 40 - units], (len(batch), 1)))
        holds = keeping(system, given_, batch, rates, nothing).all(axis=1)
        most = max(most, (system.run(given_, batch)[1].sum(axis=1) * holds).max())
    result = provision.solve(one, "patterns-throughput")
    if not most:
        assert result.status == "infeasible"
    else:
        assert result.status == "optimal" and result.verified
        assert result.objective == pytest.approx(most) and result.bound >= most


def test_no_plan_of_inss_beats_the_proven_optimum_of_its_own_rule():
    best = provision.solve(FULL_BATCHES, "auto")
    assert best.status == "optimal" and best.verified
    for method in ("inss", "gpulets+largest", "gpulets+bda"):
        found = provision.solve(FULL_BATCHES, method)
        assert found.verified == (found.status == "feasible")
        assert not found.verified or found.objective <= best.bound


def test_gpulets_batches_as_insss_baseline_takes_them():
    """A batch alone takes at most half of the SLO and fills in half of it, and the next larger one does not; nobody
    looks at interference."""
    placed, found = (provision.solve(INSTANCE, name).plan for name in ("gpulets+", "gpulets+largest"))
    shares = [{one.workload: one.sm_share for *_, one in plan.replicas()} for plan in (placed, found)]
    assert shares[0] == shares[1]
    data = SYSTEM.data[0]
    for *_, one in found.replicas():
        workload = INSTANCE.workload[one.workload]
        for batch in (one.batch, one.batch + 1):
            if batch <= data.max_batch:
                [alone] = data.predict("whole", [Member(workload.model, batch, 1, one.sm_share)])
                fills = (batch - 1) / workload.rate_rps <= workload.slo_ms / 2000
                assert (fills and alone.latency_ms <= workload.slo_ms / 2) == (batch == one.batch)


def test_gpulets_of_insss_takes_several_gpu_types():
    """Two of each type: shares are in units of their GPUs, and no more GPUs are taken than there are."""
    six = provision.read("inss-six")
    for method in ("gpulets+largest", "gpulets+bda"):
        found = provision.solve(six, method)
        assert found.verified == (found.status == "feasible") and len(found.plan.gpus) <= 4
        assert {gpu.gpu for gpu in found.plan.gpus} == {"rtx2060-super", "rtx2060"}
    few = INSTANCE.replace(fleet=[one.model_copy(update={"count": 2}) for one in INSTANCE.fleet])
    assert "needs 4 GPUs, 2 more than the fleet has" in provision.solve(few, "gpulets+").reason


def test_a_plan_that_keeps_the_instances_rule_is_feasible_and_tells_of_eq_2():
    found = provision.solve(INSTANCE, "inss-ni")
    assert (found.status, found.verified) == ("feasible", True) and "eq. 2" in found.reason
    assert provision.solve(FULL_BATCHES, "inss-ni").status == "unknown"


def test_shipped_actors_carry_what_they_were_trained_for():
    """By InSS's equations at every rate tried; by the data at those of the instance."""
    assert provision.solve(FULL_BATCHES, "inss").status == "feasible"
    six = System(provision.read("inss-six"))
    rates = np.random.default_rng(0).uniform([100, 100, 50, 100, 100, 100], [500, 400, 200, 400, 450, 400], (20, 6))
    for system, tried in ((SYSTEM, SYSTEM.rates_rps * np.random.default_rng(0).uniform(0.5, 1.5, (20, 8))),
                          (six, rates)):
        queued = np.zeros(tried.shape)
        placed = provisioning(system, inss.policy_for(inss.SHIPPED, system).act(system, tried, queued))
        assert decide_batches(system, placed, tried, queued)[1].all()


@pytest.mark.parametrize(("change", "words"), [
    (dict(objective="min_gpus"), "full_batches is for objective max_throughput"),
    (dict(workloads=(INSTANCE.workloads[0].model_copy(update={"max_replicas": None}),)), "max_replicas: 1"),
])
def test_full_batches_are_for_insss_problem(change, words):
    with pytest.raises(ValueError, match=words):
        FULL_BATCHES.replace(**change)


def test_methods_of_another_rule_refuse_full_batches():
    with pytest.raises(UnsupportedError, match="igniter cannot plan latency_budget full_batches; use --method auto"):
        provision.solve(FULL_BATCHES, "igniter")


def test_without_interference_batches_are_no_smaller_and_may_break():
    """InSS-ni takes batches that are at least InSS's, and says whom they break by the model that has interference."""
    statuses = set()
    for seed in range(6):
        one = provision.read(f"inss-seed{seed}").replace(policy=FULL_BATCHES.policy)
        plain, blind = (provision.solve(one, method) for method in ("inss", "inss-ni"))
        batches = [{replica.workload: replica.batch for *_, replica in found.plan.replicas()}
                   for found in (plain, blind)]
        assert all(batches[1][name] >= batches[0][name] for name in batches[0])
        assert (blind.status == "feasible") == blind.report.ok
        statuses.add(blind.status)
    assert statuses == {"feasible", "unknown"}


TWO_TYPES = INSTANCE.replace(
    fleet=(INSTANCE.fleet[0].model_copy(update={"count": 2}),
           INSTANCE.fleet[0].model_copy(update={"gpu": "t4", "count": 3})),
    performance=("igniter-v100", "igniter-t4-derived"),
    workloads=tuple(one.model_copy(update={"rate_rps": 0.2 * one.rate_rps}) for one in INSTANCE.workloads),
)


@settings(max_examples=30)
@given(st.tuples(*[st.tuples(st.integers(0, 4), st.integers(0, LEVELS - 1))] * SYSTEM.workloads))
def test_two_gpu_types_hold_for_the_verifier(actions):
    """Batches on V100s and T4s together, each with its own coefficients, units and neighbours."""
    system = System(TWO_TYPES)
    heads = np.zeros((system.workloads, system.gpus + LEVELS))
    for head, (gpu, level) in zip(heads, actions, strict=True):
        head[gpu] = head[system.gpus + level] = 1
    policy = TrainedPolicy(trained_for(system), ((np.zeros((heads.size, 2 * system.workloads)), heads.ravel()),))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.npz"
        path.write_bytes(packed(policy))
        result = provision.solve(TWO_TYPES, "inss", policy=str(path))
    told_ms = {one.workload: one.latency_ms for one in result.report.predictions}
    filled_in_time = all(
        task_latency_ms(1, one.batch, one.rate_rps, told_ms[one.workload]) <= TWO_TYPES.workload[one.workload].slo_ms
        for _, _, _, one in result.plan.replicas())
    assert (result.status == "feasible") == (result.report.ok and filled_in_time)
    used = sorted({at for at, _ in actions})
    assert [gpu.gpu for gpu in result.plan.gpus] == ["v100" if at < 2 else "t4" for at in used]


def test_shares_of_seventeenths_stay_on_their_grid():
    """RTX 2060s have 15 and 17 units: plans of the rivals hold there, and so do standby processes."""
    instance = provision.read("inss-six").with_policy(latency_budget="half_slo")
    result = provision.solve(instance, "igniter")
    assert result.verified
    assert provision.simulate(instance, result.plan, 3.0, shadow=True, service_factor=1.5).switches


def test_the_workflow_places_anew_only_where_batches_do_not_suffice():
    """At lower rates batches change alone; rates that the placement cannot carry are planned as if nothing ran."""
    six = provision.read("inss-six")
    before = provision.solve(six, "inss").plan
    slower = provision.replan(changed(six, {"rate": 0.6}), before, method="inss")
    assert slower.status == "feasible" and slower.changes.batch_changes and not slower.changes.moved
    one = six.workloads[2].model_copy(update={"rate_rps": 150.0})
    others = [other.model_copy(update={"rate_rps": 0.5 * other.rate_rps}) for other in six.workloads]
    busier = six.replace(workloads=[*others[:2], one, *others[3:]])
    stands = Provisioning(*map(np.array, ([[0, 1, 3, 2, 2, 3]], [[17, 17, 1, 8, 7, 14]])))
    weak = inss.plan_of(System(six), "inss", stands.gpu[0], stands.units[0], np.ones(6, int))
    assert inss.running(System(six), weak).units.tolist() == stands.units.tolist()
    assert inss.reconfigured(busier, weak) == provision.solve(busier, "inss").plan


def test_the_workflow_goes_on_from_plans_of_one_replica_each():
    six = provision.read("inss-six")
    plan = provision.solve(six, "inss").plan
    lost = plan.model_copy(update={"gpus": plan.gpus[1:]})
    with pytest.raises(UnsupportedError, match="every workload has one replica on the fleet, not"):
        provision.replan(six, lost, method="inss")


def test_running_times_by_regression_pass_through_what_was_measured(tmp_path):
    """On latencies of eq. 11 the regression is near eq. 11; a table that lacks a model is refused."""
    data, path = SYSTEM.data[0], tmp_path / "alone.csv"
    rows = ["model,batch,share_percent,latency_ms"]
    for model in data.models:
        for batch, units in ((b, u) for b in (1, 2, 4, 8, 16, 32) for u in (2, 4, 8, 12, 16, 24, 32, 40)):
            [alone] = data.predict("whole", [Member(model, batch, 1, units * 0.025)])
            rows.append(f"{model},{batch},{units * 2.5},{alone.latency_ms}")
    path.write_text("\n".join(rows) + "\n")
    found, batches, shares = regressed_ms(str(path), SYSTEM), np.arange(1, 33)[:, None], 0.025 * np.arange(1, 41)
    for model, running_ms in found.items():
        errors = running_ms / solo_terms(data, model, batches, shares).active_ms - 1
        assert np.abs(errors[:, 3:]).mean() < 0.05
    assert set(found) == {one.model for one in INSTANCE.workloads}
    assert provision.solve(INSTANCE, "inss", alone=str(path)).plan.method == "inss"
    path.write_text("\n".join(row for row in rows if not row.startswith("ssd")) + "\n")
    with pytest.raises(InputError, match="has no rows of model ssd"):
        provision.solve(INSTANCE, "inss", alone=str(path))
