"""Others who make, replace and use MIG instances."""

import contextlib

import pynvml
from applier_scenario import in_child

from provision.applier import apply, apply_last, difference, rollback, status
from provision.applier.journal import Journal
from reliability.stage import ADOPT, BESIDE, EVICT, FORMER, REFUSE, TARGET, wrong


def a6(stage):
    """A stranger's instance is in the way, beside the plan, half made, or where the plan has the same."""
    one = stage.gpus[:1]
    for place, whole, permissions, wanted in (
        (("1g.10gb", 1), True, None, "refused"), (("1g.10gb", 1), True, EVICT, "applied"),
        (BESIDE, True, None, "applied"), (BESIDE, False, None, "applied"),
        (("2g.20gb", 0), True, None, "refused"), (("2g.20gb", 0), False, None, "refused"),
        (("2g.20gb", 0), True, EVICT, "refused"), (("2g.20gb", 0), True, ADOPT, "applied"),
        (("2g.20gb", 0), False, ADOPT, "applied"),
    ):
        state = stage.case(stood=False)
        stage.stranger(*place, whole=whole)
        if place == ("2g.20gb", 0) and permissions is None:
            _, steps = difference(stage.plan(TARGET), state, one)
            if not any(step.action == "adopt" and "something else made" in step.text for step in steps):
                yield f"{place}: diff does not name it"
        before = stage.destroyed(place[1])
        outcome, line = stage.end(lambda state=state, given=permissions: stage.apply(state, given))
        if outcome != wanted or (permissions is not EVICT and stage.destroyed(place[1]) != before):
            yield f"{place}, whole {whole}, {permissions}: ends {outcome} {line}"
        if permissions is ADOPT:
            stage.end(lambda state=state: rollback(state))
            if stage.destroyed(place[1]) != before or status(state)[0].gpus[int(one[0])].slices[0].foreign is not True:
                yield f"{place}: what was taken over is not given back"
    if len(stage.gpus) == 2:
        state = stage.case(stood=False)
        stage.stranger("2g.20gb", 0)
        apply(stage.plan(TARGET), state, stage.gpus)
        if stage.standing("0") != [("2g.20gb", 0)] or stage.standing("1") != sorted(TARGET):
            yield "an idle GPU is not preferred to a stranger's slice"


def a7(stage):
    """An own instance is replaced by a stranger's: by the same, by a smaller part of it, or after a reboot."""
    for reboot in (False, True):
        for whole in (True, False, "smaller"):
            for way in ("apply", "rollback", "last"):
                state = stage.case()
                if way != "apply":
                    stage.apply(state, ADOPT)
                start, profile = (0, "3g.40gb" if way == "apply" else "2g.20gb")
                if reboot:
                    stage.reboot()
                else:
                    stage.remove(start)
                stage.stranger(profile, start, whole=whole is True)
                if whole == "smaller":
                    add_part(start)
                before = stage.destroyed(start)
                act = {"apply": lambda state=state: stage.apply(state), "rollback": lambda state=state: rollback(state),
                       "last": lambda state=state: apply_last(state)}[way]
                outcome, line = stage.end(act)
                found = next(piece for piece in status(state)[0].gpus[0].slices if piece.start == start)
                # Nothing need be destroyed where the twin of what is wanted stands, with the same UUID.
                if stage.destroyed(start) != before or (outcome == "applied" and (way != "last" or found.strange)):
                    yield f"{way}, reboot {reboot}, whole {whole}: ends {outcome} {line}"
                if not (found.strange or found.unsure):
                    yield f"{way}, reboot {reboot}, whole {whole}: status calls it the applier's own"


def add_part(start, gpu=0):
    """A stranger makes a compute instance of one slice in the instance at a start."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
    for identity in range(16):
        with contextlib.suppress(pynvml.NVMLError):
            instance = pynvml.nvmlDeviceGetGpuInstanceById(handle, identity)
            if pynvml.nvmlGpuInstanceGetInfo(instance).placement.start == start:
                offered = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, 0, 0)
                pynvml.nvmlGpuInstanceCreateComputeInstance(instance, offered.id)
    pynvml.nvmlShutdown()


def a8(stage):
    """An applier is killed, the machine reboots, a stranger makes what the applier had; then apply or rollback."""
    most = stage.calls()
    for way in ("apply", "rollback"):
        for place in (("3g.40gb", 0), ("2g.20gb", 0)):
            for number in stage.drawn(most - 1):
                state = stage.case()

                def struck(state=state, number=number):
                    with wrong(number, "kill after"):
                        stage.apply(state)

                in_child(struck)
                stage.reboot()
                stage.stranger(*place)
                before = stage.destroyed(0)
                act = stage.apply if way == "apply" else rollback
                ended = stage.end(lambda state=state, act=act: act(state))
                if stage.destroyed(0) != before or place not in stage.standing():
                    yield f"{way} after a kill at {number} and a reboot: {ended} destroyed {place}"


def a9(stage):
    """An applier is killed between a GPU instance and its compute instance, and a stranger makes its own there."""
    for number, how in ((3, "kill after"), (4, "kill before"), (4, "kill after")):
        for reboot in (False, True):
            for whole in (True, False):
                for way in ("apply", "rollback"):
                    state = stage.case()

                    def struck(state=state, number=number, how=how):
                        with wrong(number, how, changing=True):
                            stage.apply(state)

                    in_child(struck)
                    touched = [place for place in Journal(state).last().touched if place[2] in (0, 3)]
                    start = touched[-1][2]
                    if reboot:
                        stage.reboot()
                    else:
                        stage.remove(start)
                    profile = dict((at, name) for name, at in TARGET)[start]
                    stage.stranger(profile, start, whole=whole)
                    before = stage.destroyed(start)
                    what = f"{how} at change {number}, reboot {reboot}, whole {whole}, {way}"
                    act = stage.apply if way == "apply" else rollback
                    ended = stage.end(lambda state=state, act=act: act(state))
                    left = stage.end(lambda state=state: rollback(state, REFUSE))
                    if stage.destroyed(start) != before:
                        yield f"{what}: ends {ended} and {left}, and what a stranger made is destroyed"


def a15(stage):
    """A stranger takes the place of a slice between the plan and its creation, or a slice is busy."""
    state, taken = stage.case(), []

    def take(step):
        if step.action == "create_instance" and step.slice.start == 3 and not taken:
            taken.append(1)
            stage.stranger("1g.10gb", 3)

    before = stage.destroyed(3)
    outcome, line = stage.end(lambda: stage.apply(state, report=take))
    if outcome == "applied" or ("1g.10gb", 3) not in stage.standing() or stage.destroyed(3) != before:
        yield f"the place is taken: ends {outcome} {line} with {stage.standing()}"
    if stage.node:
        state = stage.case()
        client = stage.node.start_process(stage.node.instances(0)[0].devices[0][0])
        outcome, line = stage.end(lambda: stage.apply(state))
        if outcome != "refused" or stage.standing() != sorted(FORMER):
            yield f"a busy slice: ends {outcome} {line}"
        stage.node.end_process(client)


def a19(stage):
    """MIG instances are lost at a reboot, and what the last run led to is brought back."""
    state = stage.case()
    stage.apply(state)
    stage.reboot()
    if stage.end(lambda: apply_last(state))[0] != "applied" or stage.standing() != sorted(TARGET):
        yield f"apply --last after a reboot leaves {stage.standing()}"
    state = stage.case()
    stage.apply(state)
    stage.reboot()
    if stage.end(lambda: rollback(state))[0] != "restored" or stage.standing() != sorted(FORMER):
        yield f"rollback after a reboot leaves {stage.standing()}"
