"""Training InSS's scheduler: the environment against a scalar reckoning, the agent against enumeration, resuming."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provision
from provision.cli import main
from provision.heuristics.inss.batches import decide_batches
from provision.heuristics.inss.policy import LEVELS, provisioning, read_policy
from provision.heuristics.inss.system import Judged, Provisioning, System
from provision.models.base.errors import InputError
from provision.models.performance.operating_points import Member

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")
torch.set_num_threads(1)

from provision.training import train  # noqa: E402
from provision.training.agent import Agent, Replay  # noqa: E402
from provision.training.environment import PENALTY, STEPS, Serving  # noqa: E402
from provision.training.settings import PROGRAM, SETTINGS, STABLE  # noqa: E402
from provision.training.train import Training  # noqa: E402

SYSTEM = System(provision.read("inss"), judged=Judged.BY_DATA)
SIX = System(provision.read("inss-six"))
FEW = STABLE._replace(side_by_side=8)


def reckoned(system, actions, rates_rps):
    """Eq. 3 by the scalar model and eq. 2 task by task, for a step that begins with nothing waiting."""
    given = provisioning(system, actions[None])
    (batch,), _ = decide_batches(system, given, rates_rps[None], np.zeros((1, system.workloads)))
    models, total = [one.model for one in system.instance.workloads], 0.0
    for at, one in enumerate(system.instance.workloads):
        on = np.flatnonzero(given.gpu[0] == given.gpu[0, at]).tolist()
        members = [Member(models[i], int(batch[i]), 1, given.units[0, i] * 0.025) for i in on]
        latency_ms, rps, *_ = system.data[0].predict("whole", members)[on.index(at)]
        alone = system.data[0].predict("whole", [Member(one.model, 1, 1, 1.0)])[0]
        assert rps >= rates_rps[at]
        places = np.floor(rates_rps[at] * (np.arange(64) + 0.5) / 64) % batch[at] + 1
        late = np.mean(1000 * (batch[at] - places) / rates_rps[at] + latency_ms > one.slo_ms)
        total += rps / alone.throughput_rps - PENALTY * late
    return total


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.01, 0.3))
def test_rewards_are_those_of_the_scalar_model(seed, part):
    """At rates so low that every workload is carried, if with late tasks."""
    environment = Serving(SYSTEM, 1, 0.5)
    environment.reset(seed=seed)
    rng = np.random.default_rng(seed)
    actions = np.stack([np.tile(np.arange(4), 2), rng.integers(0, LEVELS, 8)], axis=1)
    environment.rates_rps = rates_rps = part * SYSTEM.rates_rps[None]
    carried = SYSTEM.run(provisioning(SYSTEM, actions[None]), np.ones((1, 8), int))[1] >= rates_rps
    if carried.all():
        assert environment.step(actions[None])[1] == pytest.approx(reckoned(SYSTEM, actions, rates_rps[0]))


def test_batches_chosen_by_inss_take_as_long_as_the_data_says():
    own, data = System(SYSTEM.instance), SYSTEM
    environment = Serving(own, 4, 0.5, by_data=True)
    environment.reset(seed=2)
    actions = np.random.default_rng(2).integers(0, [4, LEVELS], (4, 8, 2))
    given = provisioning(own, actions)
    batch, _ = decide_batches(own, given, environment.rates_rps, environment.queued)
    told = environment.step(actions)[4]["throughput_rps"]
    assert told == pytest.approx(data.run(given, batch)[1].sum(1)) != pytest.approx(own.run(given, batch)[1].sum(1))


def test_where_batches_are_found_no_task_is_late():
    """Algorithm 1 and the environment agree on eq. 2."""
    environment, found = Serving(SYSTEM, 64, 0.5), 0
    environment.reset(seed=1)
    environment.action_space.seed(1)
    for _ in range(20):
        environment.queued[:] = 0
        actions = environment.action_space.sample()
        given = provisioning(SYSTEM, actions)
        _, holds = decide_batches(SYSTEM, given, environment.rates_rps, environment.queued)
        latest = environment.step(actions)[4]["late"]
        found += holds.all(1).sum()
        assert (latest[holds.all(1)] == 0).all() and (latest[~holds.all(1)] > 0).mean() > 0.9
    assert found > 0


def test_episodes_keep_to_their_spaces_and_seeds():
    one, other = Serving(SYSTEM, 3, 0.5), Serving(SYSTEM, 3, 0.5)
    one.action_space.seed(0)
    assert np.array_equal(one.reset(seed=5)[0], other.reset(seed=5)[0])
    for step in range(STEPS):
        actions = one.action_space.sample()
        found, same = one.step(actions), other.step(actions)
        assert one.observation_space.contains(found[0]) and np.array_equal(found[0], same[0])
        assert np.array_equal(found[1], same[1]) and not found[2].any()
        assert found[3].all() == (step == STEPS - 1)
        parts = one.rates_rps / SYSTEM.rates_rps
        assert parts.min() > 0.5 - 1e-9 and parts.max() < 1.5 + 1e-9
    assert not np.array_equal(one.reset(seed=5)[0], one.reset(seed=6)[0])


def test_an_episode_comes_to_what_it_came_to_batch_by_batch():
    """Rewards as they were when batches were judged one after the other, and units went one by one."""
    environment = Serving(SYSTEM, 4, 0.5)
    environment.reset(seed=3)
    environment.action_space.seed(3)
    rewards = sum(environment.step(environment.action_space.sample())[1] for _ in range(40))
    assert rewards == pytest.approx([-9026.839442951, -10455.303135069, -9658.470954751, -10904.521553915], rel=1e-10)


@pytest.mark.parametrize("name", SETTINGS)
def test_values_of_states_are_those_over_all_joint_actions(name):
    """Eq. 7's expectation, head by head, against the sum over every action of a system of two workloads."""
    small = System(SYSTEM.instance.replace(workloads=SYSTEM.instance.workloads[:2]))
    agent, state = Agent(small, 3, 1, SETTINGS[name]), torch.rand(1, 4)
    actions = torch.tensor([(a, c, b, d) for a, b, c, d in product(range(4), range(4), range(LEVELS), range(LEVELS))])
    actions = actions.view(-1, 2, 2)
    with torch.no_grad():
        chances, outputs = agent._log_chances(state), agent.networks.critics[0](state)
        heads = agent._cut(chances)
        logs = sum(heads[kind][0, one, actions[:, one, kind]] for one in range(2) for kind in range(2))
        values = agent._of_actions(outputs.expand(len(actions), -1), actions)
        expected = (logs.exp() * (values - agent.temperature * logs)).sum()
        assert float(logs.exp().sum()) == pytest.approx(1, rel=1e-4)
        assert float(agent._soft_values(chances, agent._values(outputs))) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_agent_learns_what_pays(name):
    """A reward for one GPU and one level of every workload: soon they are the most likely."""
    small = System(SYSTEM.instance.replace(workloads=SYSTEM.instance.workloads[:2]))
    agent, rng = Agent(small, 0, 400, SETTINGS[name]), np.random.default_rng(0)
    for _ in range(120):
        states = rng.random((100, 4), np.float32)
        actions = agent.act(states, rng)
        rewards = (actions == np.array([2, 7])).mean((1, 2), dtype=np.float32)
        agent.learn(*map(torch.from_numpy, (states, actions, 10 * rewards, states)))
    chances = agent._cut(agent._log_chances(torch.from_numpy(states)))
    assert (chances[0].argmax(-1) == 2).float().mean() > 0.9 and (chances[1].argmax(-1) == 7).float().mean() > 0.9


def test_a_shift_that_all_choices_share_is_the_states():
    """Advantages are centred: what a network adds to every choice of a head leaves Q as it is."""
    agent, state = Agent(SYSTEM, 1, 1, STABLE), torch.rand(3, 16)
    outputs, actions = agent.networks.critics[0](state), torch.zeros(3, 8, 2, dtype=torch.int64)
    shifted = outputs + 5
    shifted[:, 0] -= 5
    assert torch.allclose(agent._of_actions(outputs, actions), agent._of_actions(shifted, actions), atol=1e-4)
    assert not torch.allclose(agent._of_actions(outputs, actions), agent._of_actions(outputs, actions + 1))


@pytest.mark.parametrize(("settings", "change"), [(STABLE, 0.0), (PROGRAM, -5.0)])
def test_the_lower_critic_counts_for_a_state_as_a_whole(settings, change):
    """What one critic gives to all choices of a head and takes from the state changes nothing; by parts it does."""
    agent = Agent(SYSTEM, 1, 1, settings)
    chances = agent._log_chances(torch.rand(3, 16))
    state, choices = torch.rand(3), torch.rand(3, 8 * (4 + LEVELS))
    other = choices.clone()
    other[:, :4] -= 5
    found = agent._least(chances, [(state, choices), (state + 5, other)])
    assert torch.allclose(found, agent._soft_values(chances, (state, choices)) + change, atol=1e-4)


@pytest.mark.parametrize(("settings", "part"), [(STABLE, 0.5), (PROGRAM, 1.0)])
def test_networks_learn_slower_with_time(settings, part):
    agent = Agent(SYSTEM, 0, 4, settings)
    agent.anneal(600)
    rates = {name: one.param_groups[0]["lr"] for name, one in agent.optimizers.items()}
    assert rates == pytest.approx({"critics": 2e-4 * part, "actor": 2e-4 * part, "temperature": 4e-4})


def test_the_temperature_stays_above_its_floor():
    agent, rng = Agent(SYSTEM, 0, 10**7, STABLE._replace(coldest=-0.5)), np.random.default_rng(0)
    for _ in range(3):
        states = torch.from_numpy(rng.random((100, 16), np.float32))
        agent.learn(states, torch.zeros(100, 8, 2, dtype=torch.int64), torch.zeros(100), states)
    assert agent.networks.log_temperature.item() == pytest.approx(-0.5)


def test_the_buffer_keeps_the_latest_transitions():
    kept, rng = Replay(SYSTEM, STABLE._replace(capacity=150)), np.random.default_rng(0)
    for start in range(0, 400, 40):
        rewards = np.arange(start, start + 40, dtype=np.float32)
        states = np.tile(rewards[:, None], 16)
        kept.add(states, np.zeros((40, 8, 2), int), rewards, states)
        assert (kept.sample(rng) is None) == (start < 80)
    states, _, rewards, _ = kept.sample(rng)
    assert states.min() >= 250 and torch.equal(rewards, 0.02 * states[:, 0])


def test_transitions_with_large_errors_are_drawn_more_often():
    kept, rng = Replay(SYSTEM, PROGRAM), np.random.default_rng(0)
    rewards = np.arange(1000, dtype=np.float32)
    kept.add(np.tile(rewards[:, None], 16), np.zeros((1000, 8, 2), int), rewards, np.tile(rewards[:, None], 16))
    for _ in range(40):
        states, _, learned, _ = kept.sample(rng)
        assert torch.equal(states[:, 0], learned) and len(set(learned.tolist())) == len(learned)
        kept.learned((learned >= 900) * 10.0)
    assert (kept.sample(rng)[2] >= 900).float().mean() > 0.5
    kept.add(np.zeros((1, 16)), np.zeros((1, 8, 2), int), np.array([-1.0]), np.zeros((1, 16)))
    assert kept.errors[0 if kept.count > 10_000 else 1000] == kept.most == 10


def test_heads_that_learn_separately_have_targets_of_their_own():
    """Each by its own choices' values, against a loop over workloads and heads."""
    agent, states = Agent(SYSTEM, 5, 1, PROGRAM), torch.rand(4, 16)
    after, rewards, actions = torch.rand(4, 16), torch.rand(4), torch.randint(0, 4, (4, 8, 2))
    found = agent._critic_errors(states, actions, rewards, after)
    with torch.no_grad():
        chances = agent._cut(agent._log_chances(after))
        target = agent._cut(torch.minimum(*(critic(after)[:, 1:] for critic in agent.networks.targets)))
        for critic, errors in zip(agent.networks.critics, found, strict=True):
            values, total = agent._cut(critic(states)[:, 1:]), torch.zeros(4)
            for row, workload, head in product(range(4), range(8), range(2)):
                logs, worth = chances[head][row, workload], target[head][row, workload]
                wanted = rewards[row] + 0.99 * (logs.exp() * (worth - agent.temperature * logs)).sum()
                total[row] += (values[head][row, workload, actions[row, workload, head]] - wanted) ** 2
            assert torch.allclose(errors, total, rtol=1e-4)


def test_workloads_for_which_no_memory_is_left_serve_nothing():
    """Six models on one RTX 2060: in their order until its 6 GiB are full."""
    environment = Serving(SIX, 1, 0.5)
    environment.reset(seed=0)
    actions = np.full((1, 6, 2), 2)
    given = provisioning(SIX, actions)
    runs, used_gib = SIX.deployed(given, np.ones((1, 6), int))
    asked = [SIX.data[1].models[one.model].memory_gib(1) for one in SIX.instance.workloads]
    assert runs.tolist() == [[True, True, True, True, False, False]]
    assert used_gib[0].tolist() == pytest.approx([0, 0, sum(asked[:4]), 0])
    observed, _, _, _, info = environment.step(actions)
    assert observed[0, -4:] == pytest.approx([0, 0, sum(asked[:4]) / 6, 0]) and info["late"][0] >= 2 / 6
    alone = Provisioning(np.array([[0, 1, 2, 3, 0, 1]]), np.ones((1, 6), int))
    assert SIX.deployed(alone, np.ones((1, 6), int))[0].all()


def test_resumed_training_is_the_same_as_uninterrupted(monkeypatch, tmp_path):
    from provision.training.train import load, save

    monkeypatch.setattr(train, "STEPS", 10)
    whole, first = Training(SYSTEM, 4, FEW), Training(SYSTEM, 4, FEW)
    for _ in range(4):
        whole.run()
    for _ in range(2):
        first.run()
    save(first, tmp_path / "state")
    with pytest.raises(InputError, match="other --settings"):
        load(tmp_path / "state", SYSTEM, 4, PROGRAM)
    second = load(tmp_path / "state", SYSTEM, 4, FEW)
    for _ in range(2):
        second.run()
    assert np.array_equal(second.history, whole.history) and second.episodes == 4 * FEW.side_by_side
    assert second.best[0] == whole.best[0] >= first.best[0]
    for one, other in zip(second.agent.layers(), whole.agent.layers(), strict=True):
        assert all(map(np.array_equal, one, other))
    assert not np.array_equal(first.agent.layers()[0][0], second.agent.layers()[0][0])


def test_the_command_trains_resumes_and_draws(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(train, "STEPS", 8)
    monkeypatch.setitem(SETTINGS, "stable", FEW)
    out, png = tmp_path / "policy.npz", tmp_path / "figures.png"
    assert main(["train", "inss", "--out", str(out), "--episodes", "16", "--seed", "2"]) == 0
    assert "16 episodes" in capsys.readouterr().out
    again = ["train", "inss", "--out", str(out), "--episodes", "32", "--json"]
    assert main(again) == 2 and "exists already" in capsys.readouterr().err
    assert main([*again, "--resume"]) == 2 and "--seed 2" in capsys.readouterr().err
    assert main([*again, "--resume", "--seed", "2", "--png", str(png)]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 32
    assert read_policy(out).trained.episodes == 32 and png.read_bytes().startswith(b"\x89PNG")
    result = provision.solve(SYSTEM.instance, "inss", policy=str(out))
    assert result.verified == (result.status == "feasible")


@pytest.mark.parametrize("arguments, words", [
    (["inss", "--episodes", "0"], "argument --episodes: should be"), (["inss", "--seed", "-1"], "argument --seed: "),
    (["inss", "--png", "x.gif"], "PNG or SVG"),
    (["igniter-testbed-12"], "inss plans for max_throughput, not for min_cost"),
    (["parvagpu-s1"], "inss cannot plan"), (["inss", "--resume"], "leave out --resume"),
])
def test_what_cannot_be_trained_is_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments, "--out", "policy.npz"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_broken_checkpoints_are_refused(tmp_path, capsys):
    out = tmp_path / "policy.npz"
    (tmp_path / "policy.npz.state").write_bytes(b"PK\x03\x04 nothing")
    assert main(["train", "inss", "--out", str(out), "--resume"]) == 2
    assert "is no checkpoint" in capsys.readouterr().err
