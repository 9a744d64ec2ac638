"""What the applier did not make: named, left alone, destroyed only where it stands in the way and only when told to."""

import json

import pynvml
import pytest
from applier_scenario import KIND, in_child, places, plan
from driver import Node
from driver.layouts import create
from driver.scenes import clear

from provision.applier import Permissions, apply, difference, rollback, status
from provision.applier.driver import calls
from provision.applier.journal import Journal
from provision.cli import main
from provision.models.base.errors import InputError

pytest_plugins = ["applier_fixtures"]
HALF, EIGHTH = 9, 19


def make(gpu, profile, start, size):
    """Something else makes a MIG instance with its compute instance."""
    pynvml.nvmlInit()
    instance = create(pynvml.nvmlDeviceGetHandleByIndex(gpu), profile, start, size)
    sms = pynvml.nvmlDeviceGetGpuInstanceProfileInfoById(pynvml.nvmlDeviceGetHandleByIndex(gpu), profile)
    enumerator = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[sms.sliceCount]
    info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enumerator, 0)
    pynvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
    pynvml.nvmlShutdown()


def destroyed(node, since):
    return [call.args for call in node.calls()[since:] if call.name == "nvmlGpuInstanceDestroy"]


def test_a_failed_apply_leaves_what_others_made_meanwhile_and_mig_on_under_it(folder, state):
    node = Node(folder / "node", [KIND])
    permissions = Permissions(allow_mig_mode_change=True)

    def meddle(step):
        if step.action == "create_compute":
            make(0, EIGHTH, 6, 1)
            node.fault("nvmlGpuInstanceCreateComputeInstance", 1, "error", pynvml.NVML_ERROR_UNKNOWN)

    with node.loaded():
        outcome = apply(plan([("4g.40gb", 0)]), state, permissions=permissions, report=meddle)
    assert outcome.outcome == "restored" and len(destroyed(node, 0)) == 1
    assert places(node) == [(EIGHTH, 6)] and node.gpus[0].mig == 1
    assert "GPU 0: 1g.10gb at 6 stays, which something else made, and so does MIG on" in outcome.notes


def test_only_what_the_run_made_is_undone(node, state):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    begun = len(node.calls())

    def meddle(step):
        if step.action == "create_instance":
            make(0, EIGHTH, 3, 1)
            node.fault("nvmlGpuInstanceCreateComputeInstance", 1, "error", pynvml.NVML_ERROR_UNKNOWN)

    outcome = apply(plan([("2g.20gb", 0), ("3g.40gb", 4)]), state, gpus=["0"], report=meddle)
    assert outcome.outcome == "restored" and places(node) == [(EIGHTH, 3), (HALF, 4)]
    assert len(destroyed(node, begun)) == 1
    assert outcome.notes[0] == "GPU 0: 1g.10gb at 3 stays, which something else made"


def test_what_cannot_be_brought_back_over_others_is_told(node, state):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])

    def meddle(step):
        if step.action == "create_instance" and step.slice.start == 4:
            make(0, EIGHTH, 5, 1)

    outcome = apply(plan([("4g.40gb", 0), ("1g.10gb", 4)]), state, gpus=["0"], report=meddle)
    assert outcome.outcome == "applied"
    with pytest.raises(InputError, match=r"3g\.40gb at 4 cannot be brought back: 1g\.10gb at 5 stands there"):
        rollback(state)
    assert rollback(state, permissions=Permissions(evict_foreign=True)).outcome == "restored"
    assert places(node) == [(HALF, 4)]


def test_idle_foreign_instances_are_named_and_asked_for(node, state, capsys, folder):
    make(0, EIGHTH, 1, 1)
    make(0, EIGHTH, 6, 1)
    wanted = plan([("4g.40gb", 0)])
    _, steps = difference(wanted, state, gpus=["0"])
    assert [step.text for step in steps if step.foreign] == [
        "destroy the compute instance with 14 SMs of 1g.10gb at 1, which something else made",
        "destroy 1g.10gb at 1, which something else made",
    ]
    with pytest.raises(InputError, match=r"GPU 0, 1g\.10gb at 1 was made by something else and stands in the way"):
        apply(wanted, state, gpus=["0"])
    assert node.counts[1] == 4
    assert apply(wanted, state, gpus=["0"], permissions=Permissions(evict_foreign=True)).outcome == "applied"
    assert places(node) == [(5, 0), (EIGHTH, 6)]
    assert [piece.foreign for piece in status(state)[0].gpus[0].slices] == [False, True]
    lines = [json.loads(line) for line in Journal(state).path.read_text().splitlines()]
    assert any("which something else made" in line.get("text", "") for line in lines)
    assert main(["status", "--state", str(state)]) == 0 and "others" in capsys.readouterr().out
    assert rollback(state).outcome == "restored" and places(node) == [(EIGHTH, 1), (EIGHTH, 6)]


def test_the_fewest_moves_that_make_room_are_offered(node, state):
    """Four memory slices are free, yet no 3g has a place."""
    for start in (0, 1, 2, 5):
        make(0, EIGHTH, start, 1)
    with pytest.raises(InputError, match=r"--evict-foreign; the fewest moves that make room: 1g\.10gb from 5 to 3$"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    assert len(places(node)) == 4


def test_another_state_directory_is_another_owner(node, state, folder):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    with pytest.raises(InputError, match="made by something else"):
        apply(plan([("7g.80gb", 0)]), folder / "t", gpus=["0"])
    assert apply(plan([("4g.40gb", 0)]), folder / "t", gpus=["0"]).outcome == "applied"
    assert places(node) == [(5, 0), (HALF, 4)]
    assert rollback(folder / "t").outcome == "restored" and places(node) == [(HALF, 4)]


def test_an_instance_made_again_by_others_is_not_ours_any_more(node, state):
    apply(plan([("1g.10gb", 5)]), state, gpus=["0"])
    node.reset(0)
    make(0, EIGHTH, 5, 1)
    with pytest.raises(InputError, match="made by something else"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])


def create_alone(gpu, profile, start, size):
    """Something else makes a MIG instance without a compute instance."""
    pynvml.nvmlInit()
    create(pynvml.nvmlDeviceGetHandleByIndex(gpu), profile, start, size)
    pynvml.nvmlShutdown()


def test_what_others_make_where_a_failed_run_made_nothing_is_theirs(node, state):
    node.fault("nvmlDeviceCreateGpuInstanceWithPlacement", 1, "error", pynvml.NVML_ERROR_UNKNOWN)
    assert apply(plan([("1g.10gb", 5)]), state, gpus=["0"]).outcome == "restored"
    create_alone(0, EIGHTH, 5, 1)
    assert status(state)[0].gpus[0].slices[0].foreign
    with pytest.raises(InputError, match="made by something else"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])


def test_an_instance_that_others_make_with_the_id_of_ours_is_theirs(node, state):
    apply(plan([("1g.10gb", 5)]), state, gpus=["0"])
    ours = status(state)[0].gpus[0].slices[0].instance
    node.reset(0)
    create_alone(0, EIGHTH, 5, 1)
    found = status(state)[0].gpus[0].slices[0]
    assert found.instance == ours and found.foreign
    with pytest.raises(InputError, match="which provision or something else made"):
        apply(plan([("3g.40gb", 4)]), state, gpus=["0"])


def test_what_a_killed_run_may_have_made_is_asked_about(node, state):
    node.fault("nvmlDeviceCreateGpuInstanceWithPlacement", 1, "kill_after")
    in_child(lambda: apply(plan([("3g.40gb", 4)]), state, gpus=["0"]))
    assert places(node) == [(HALF, 4)]
    for act in (lambda: rollback(state), lambda: apply(plan([("3g.40gb", 4)]), state, gpus=["0"])):
        with pytest.raises(InputError, match=r"provision or something else made\? Add --adopt .* or --no-adopt"):
            act()
    left = rollback(state, Permissions(adopt=False))
    assert left.outcome == "restored" and places(node) == [(HALF, 4)]
    assert left.notes == ("GPU 0: 3g.40gb at 4 stays, which something else made",)


def test_what_a_killed_run_made_goes_when_that_is_told(node, state):
    node.fault("nvmlDeviceCreateGpuInstanceWithPlacement", 1, "kill_after")
    in_child(lambda: apply(plan([("3g.40gb", 4)]), state, gpus=["0"]))
    assert rollback(state, Permissions(adopt=True)).outcome == "restored" and not places(node)


def test_what_others_took_away_themselves_is_not_brought_back(node, state):
    """Their GPU instance is in the plan; they destroy it when its compute instance is about to be made."""
    pynvml.nvmlInit()
    half = create(pynvml.nvmlDeviceGetHandleByIndex(0), HALF, 4, 4)

    def meddle(step):
        if step.action == "create_compute" and step.slice.start == 4:
            pynvml.nvmlGpuInstanceDestroy(half)

    allowed = Permissions(adopt=True)
    outcome = apply(plan([("1g.10gb", 0), ("3g.40gb", 4)]), state, ["0"], permissions=allowed, report=meddle)
    pynvml.nvmlShutdown()
    assert outcome.outcome == "restored" and not places(node)


@pytest.fixture
def named(node, monkeypatch, folder):
    """GPUs whose MIG devices have the UUIDs of those before them when they are made again; yields folders of /proc."""
    node.answer(0, "named")
    monkeypatch.setattr(calls, "CAPABILITIES", folder / "capabilities")
    return folder / "capabilities/gpu0/mig"


def replaced():
    """Something else destroys the instance of half a GPU at 4 and makes the same again there."""
    clear(0)
    make(0, HALF, 4, 4)


def test_a_twin_with_the_uuid_of_ours_is_asked_about_before_it_is_destroyed(node, named, state):
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    device = status(state)[0].gpus[0].slices[0].device
    replaced()
    found = status(state)[0].gpus[0].slices[0]
    assert found.device == device and found.unsure
    begun = len(node.calls())
    asks = pytest.raises(InputError, match=r"which provision or something else made\? Add --adopt .* or --no-adopt")
    for act in (lambda: rollback(state), lambda: apply(plan([("2g.20gb", 4)]), state, gpus=["0"])):
        with asks:
            act()
    assert apply(plan([("3g.40gb", 4)]), state, gpus=["0"]).outcome == "applied"
    with asks:
        apply(plan([("2g.20gb", 4)]), state, gpus=["0"])
    assert rollback(state, Permissions(adopt=False)).outcome == "restored" and places(node) == [(HALF, 4)]
    assert not destroyed(node, begun)


def test_what_the_kernel_has_had_all_along_is_ours_whatever_its_uuid(node, named, state):
    (named / "gi1/ci0").mkdir(parents=True)
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    assert status(state)[0].gpus[0].slices[0].instance == 1
    assert apply(plan([("2g.20gb", 4)]), state, gpus=["0"]).outcome == "applied" and places(node) == [(14, 4)]


def test_what_the_kernel_has_anew_is_asked_about(node, named, state):
    (named / "gi1/ci0").mkdir(parents=True)
    apply(plan([("3g.40gb", 4)]), state, gpus=["0"])
    replaced()
    (named / "gi1/ci0").rename(named / "old")
    (named / "gi1/ci0").mkdir()
    with pytest.raises(InputError, match="which provision or something else made"):
        rollback(state)
    assert rollback(state, Permissions(adopt=True)).outcome == "restored" and not places(node)


def test_an_instance_with_our_own_server_is_ours_whatever_its_uuid(node, named, state):
    wanted = plan([("3g.40gb", 4, {"a": 2})])
    apply(wanted, state, gpus=["0"])
    pipe, = node.daemons()
    assert status(state)[0].gpus[0].slices[0].unsure
    node.start_client(pipe)
    assert not status(state)[0].gpus[0].slices[0].unsure
