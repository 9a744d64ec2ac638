"""Appliers that are killed, interrupted, refused or lied to by the driver, two at once, or with late lists."""

import contextlib
import os
import signal
import time
from unittest import mock

import pynvml
from applier_scenario import in_child

from provision.applier import Commands, apply, rollback
from provision.applier.journal import Journal
from provision.applier.serving import servers
from provision.commands.apply import carried_out
from provision.models.base.errors import InputError
from reliability.stage import ADOPT, ASKS, BESIDE, CODES, FORMER, TARGET, quiet, wrong


def a1(stage):
    """An applier is killed at any call; then apply or rollback."""
    most = stage.calls()
    for how in ("kill before", "kill after"):
        for way in ("apply", "rollback"):
            for number in stage.drawn(most):
                state = stage.case()
                stage.stranger(*BESIDE)

                def struck(state=state, number=number, how=how):
                    with wrong(number, how), contextlib.suppress(InputError):
                        stage.apply(state)

                ended = in_child(struck)
                if ended not in (-signal.SIGKILL, 0):
                    yield f"{how} at {number}: ends with {ended}"
                yield from (f"{how} at {number}: {line}" for line in stage.finish(state, way))


def a2(stage):
    """A signal comes at any call of an applier, which ends between two steps; then apply or rollback."""
    most = stage.calls()
    for way in ("apply", "rollback"):
        for number in stage.drawn(most):
            state = stage.case()
            stage.stranger(*BESIDE)
            which = stage.draw.choice((signal.SIGTERM, signal.SIGHUP))
            with wrong(number, which), quiet():
                code = carried_out(lambda state=state: stage.apply(state), "applied", lambda told: None, lambda: "")
            if code not in (0, 128 + which) or (Journal(state).last().unfinished != (code != 0)):
                yield f"{which} at {number}: exit code {code}"
            yield from (f"interrupted at {number}: {line}" for line in stage.finish(state, way))


def a3(stage):
    """Any call fails with any error, or is done and told as failed."""
    most = stage.calls()
    for how in ("error", "after"):
        for number in stage.drawn(most, 2):
            state, code = stage.case(), stage.draw.choice(CODES)
            stage.stranger(*BESIDE)
            with wrong(number, how, code=code):
                outcome, line = stage.end(lambda state=state: stage.apply(state))
            what = f"{how} {code} at {number}"
            if outcome in ("applied", "restored", "refused"):
                goal = TARGET if outcome == "applied" else FORMER
                if stage.standing() != sorted([*goal, BESIDE]):
                    yield f"{what}: says {outcome} {line} with {stage.standing()}"
            yield from (f"{what}: {line}" for line in stage.finish(state, "apply"))


def a4(stage):
    """A changing call reports success and does nothing."""
    for number in range(1, stage.calls(changing=True) + 1):
        state = stage.case()
        stage.stranger(*BESIDE)
        with wrong(number, "silent", changing=True):
            outcome, line = stage.end(lambda state=state: stage.apply(state))
        if outcome != "restored" or stage.standing() != sorted([*FORMER, BESIDE]):
            yield f"silent change {number}: ends {outcome} {line} with {stage.standing()}"
        if (again := stage.end(lambda state=state: stage.apply(state))) != ("applied", ""):
            yield f"silent change {number}: the next apply ends {again}"


def a5(stage):
    """Two teams apply the same plan at once, with state directories of their own."""
    if len(stage.gpus) < 2:
        return
    for offset_s in (0.0, 0.2):
        stage.case(stood=False)
        teams = []
        for at in range(2):
            child = os.fork()
            if child == 0:
                time.sleep(at * offset_s)
                ended = stage.end(lambda at=at: apply(
                    stage.plan(TARGET), stage.folder / f"team{stage.cases}{at}", stage.gpus, wait=True))
                os._exit(0 if ended == ("applied", "") else 1)
            teams.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in teams]
        if codes != [0, 0] or any(stage.standing(gpu) != sorted(TARGET) for gpu in stage.gpus):
            yield f"two teams end {codes} with {[stage.standing(gpu) for gpu in stage.gpus]}"


def a22(stage):
    """The driver's lists are late, longer than anybody waits for: nothing is lost, and what is told is so."""
    for number in (1, 2, 3):
        state = stage.case()
        stage.stranger(*BESIDE)
        with late(stage):
            outcome, line = stage.end(lambda state=state: stage.apply(state))
        if outcome in ("applied", "restored", "refused"):
            goal = TARGET if outcome == "applied" else FORMER
            if stage.standing() != sorted([*goal, BESIDE]):
                yield f"{number}: says {outcome} {line} with {stage.standing()}"
        yield from stage.finish(state, "apply" if number != 2 else "rollback")


@contextlib.contextmanager
def late(stage):
    """Within, the lists of GPU instances are those of the beginning."""
    real, kept = pynvml.nvmlDeviceGetGpuInstances, {}

    def listed(device, profile, found, count):
        key = pynvml.nvmlDeviceGetIndex(device), profile
        if key not in kept:
            real(device, profile, found, count)
            kept[key] = list(found[: count._obj.value])
        for at, handle in enumerate(kept[key]):
            found[at] = handle
        count._obj.value = len(kept[key])

    with mock.patch.object(pynvml, "nvmlDeviceGetGpuInstances", listed):
        yield


def a23(stage):
    """An applier that starts servers is killed: none is lost, none runs twice."""
    commands, wanted = Commands("sleep 600"), stage.plan([("3g.40gb", 0, {"a": 1}), ("3g.40gb", 4, {"b": 1})])
    for way in ("apply", "rollback"):
        state = stage.case(stood=False)

        def struck(state=state):
            with wrong(4, "kill after", changing=True):
                apply(wanted, state, stage.gpus[:1], commands)

        in_child(struck)
        act = {"apply": lambda given=None, state=state: apply(wanted, state, stage.gpus[:1], commands, given),
               "rollback": lambda given=None, state=state: rollback(state, given)}[way]
        if ASKS in stage.end(act)[1]:
            stage.end(lambda act=act: act(ADOPT))
        running = [one for device in servers.running(state.resolve()).values() for one in device.values()]
        if len(running) != (2 if way == "apply" else 0):
            yield f"{way}: {len(running)} servers run"
        stage.end(lambda state=state: rollback(state, ADOPT))
        if servers.running(state.resolve()):
            yield f"{way}, then rollback: servers are left"
