"""Journals, state directories, locks, plans, drivers, daemons and GPUs that are not as they should be."""

import contextlib
import errno
import os
import stat
from unittest import mock

import pynvml
from applier_scenario import plan

from provision.applier import apply, locks, rollback, status
from provision.applier.journal import Journal
from provision.cli import main
from provision.models.base.errors import InputError
from reliability.stage import BESIDE, FORMER, TARGET, quiet


def journals(stage, nowhere):
    """The journal takes no more lines from any of its lines on; yields what is wrong, and (state, case) after each."""
    real = Journal._append
    state, written = stage.case(), []
    with mock.patch.object(Journal, "_append", lambda self, lines: (written.append(1), real(self, lines))[1]):
        stage.apply(state)
    for kind in ("no room", "half a line", "not synchronised"):
        for number in range(1, len(written) + 1, 1 if stage.draws > 1 else 5):
            state, count = stage.case(), []

            def append(self, lines, kind=kind, number=number, count=count):
                count.append(1)
                if len(count) < number:
                    return real(self, lines)
                if kind == "half a line":
                    with open(self.path, "ab") as file:
                        file.write(lines[-1][: len(lines[-1]) // 2])
                if kind == "not synchronised":
                    real(self, lines)
                raise OSError(errno.EIO if kind == "not synchronised" else errno.ENOSPC, os.strerror(errno.ENOSPC))

            with mock.patch.object(Journal, "_append", append), contextlib.ExitStack() as patched:
                if nowhere:
                    patched.enter_context(mock.patch.object(Journal, "saved", lambda self: None))
                outcome, line = stage.end(lambda state=state: stage.apply(state))
            what = f"{kind} from line {number}"
            goal = {"applied": TARGET, "restored": FORMER, "refused": FORMER}.get(outcome)
            if goal is None or stage.standing() != sorted(goal):
                yield f"{what}: ends {outcome} {line} with {stage.standing()}"
            if outcome == "refused" and number > 1:
                yield f"{what}: says that nothing was done"
            yield state, what


def a10(stage):
    """The journal takes no more lines: no room, half a line, an error of fsync; perhaps no other place does either."""
    for nowhere in (False, True):
        yield from (found for found in journals(stage, nowhere) if isinstance(found, str))


def a11(stage):
    """After a journal that took no more lines there is room again, and the plan is applied."""
    for found in journals(stage, nowhere=False):
        if isinstance(found, str):
            yield found
            continue
        state, what = found
        if (ended := stage.end(lambda state=state: stage.apply(state))) != ("applied", ""):
            yield f"{what}: the next apply ends {ended}"
        if stage.standing() != sorted(TARGET) or Journal(state).last().unfinished:
            yield f"{what}: the next apply leaves {stage.standing()}"


def a12(stage):
    """The journal is damaged: whatever is done, a stranger's instance stays, and nothing ends in a traceback."""
    state = stage.case()
    stage.stranger(*BESIDE)
    good = Journal(state).path.read_bytes()
    damaged = [b"", b"\0\1\2", b"{}", b"[1]", b"null", b"[" * 100_000 + b"]" * 100_000,
               b'{"event": "begin", "run": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
               good.replace(b'"verb"', b'"werb"'), *(good[: len(good) * at // 7] for at in range(1, 7))]
    for _ in range(6):
        flipped = bytearray(good)
        flipped[stage.draw.randrange(len(good))] ^= 1 << stage.draw.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        for act in (lambda: status(state), lambda: stage.apply(state), lambda: rollback(state)):
            stage.cases += 1
            Journal(state).path.write_bytes(content)
            with contextlib.suppress(InputError):
                act()
            if BESIDE not in stage.standing():
                yield f"a journal of {content[:30]!r}: a stranger's instance is destroyed"


def a13(stage):
    """Output goes nowhere: the exit code is the verdict on the GPUs."""
    state = stage.case(stood=False)
    for name, goal in (("apply", TARGET), ("rollback", [])):
        stage.cases += 1
        quiet = mock.patch("provision.commands.apply.say")
        with open("/dev/full", "w") as full, mock.patch("sys.stdout", full), quiet:
            code = main([name, *(stage.files(state) if name == "apply" else ["--state", str(state)]), "--yes"])
        if code != 0 or stage.standing() != sorted(goal):
            yield f"{name} with a full stdout: exit code {code} with {stage.standing()}"


def a14(stage):
    """The state directory cannot be one."""
    (stage.folder / "file").write_text("")
    (stage.folder / "open").mkdir(exist_ok=True)
    (stage.folder / "open").chmod(0o777)
    for path in ("/proc", "/sys", "/dev/null/x", stage.folder / "file", stage.folder / "open"):
        stage.case(stood=False)
        outcome, line = stage.end(lambda path=path: stage.apply(path))
        if outcome != "refused" or "\n" in line or stage.standing():
            yield f"--state {path}: ends {outcome} {line}"


def a17(stage):
    """The driver cannot be used at all."""
    for code in (4, 9, 12, 18, 999):
        state = stage.case(stood=False)
        with mock.patch.object(pynvml, "nvmlInit", mock.Mock(side_effect=pynvml.NVMLError(code))):
            outcome, line = stage.end(lambda state=state: stage.apply(state))
        if outcome != "refused" or "\n" in line:
            yield f"nvmlInit fails with {code}: ends {outcome} {line}"


def a18(stage):
    """The machine has other GPUs, or not as many, or none of the names that are given."""
    other = "t4" if stage.kind != "t4" else "a30"
    whole = plan([("whole", 0)], kind=other)
    foreign = whole.model_copy(update={"gpus": (whole.gpus[0].model_copy(update={"mig": False}),)})
    many = stage.plan(*[TARGET] * 99)
    for wanted, gpus in ((foreign, None), (many, None), (stage.plan(TARGET), ["99"]), (stage.plan(TARGET), ["x"])):
        state = stage.case(stood=False)
        outcome, line = stage.end(lambda state=state, wanted=wanted, gpus=gpus: apply(wanted, state, gpus))
        if outcome != "refused" or "\n" in line:
            yield f"{gpus}: ends {outcome} {line}"


def a20(stage):
    """An MPS daemon dies, or cannot be started."""
    if not stage.node:
        return
    state = stage.case(stood=False)
    wanted = stage.plan([("3g.40gb", 4, {"a": 2})])
    apply(wanted, state, stage.gpus[:1])
    for daemon in stage.node.daemons().values():
        stage.node.end_process(daemon.pid)
    if stage.end(lambda: apply(wanted, state, stage.gpus[:1])) != ("applied", "") or len(stage.node.daemons()) != 1:
        yield "a daemon that died is not started again"
    state = stage.case(stood=False)
    stage.node.fault("mps:-d", 1, "error", 1)
    if stage.end(lambda: apply(wanted, state, stage.gpus[:1]))[0] != "restored" or stage.standing():
        yield f"a daemon that cannot be started leaves {stage.standing()}"


def a24(stage):
    """A plan was made for something else, or was tampered with."""
    misplaced = {"gpu": stage.kind, "mig": True, "slices": [{"profile": "3g.40gb", "start": 1, "replicas": []}]}
    for changed, code in (
        ({}, 0), ({"instance": "other"}, 2), ({"digest": "0" * 64}, 2), ({"gpus": []}, 2), ({"version": 9}, 2),
        ({"gpus": [misplaced]}, 2),
    ):
        state = stage.case(stood=False)
        with quiet():
            ended = main(["apply", *stage.files(state, **changed), "--yes"])
        if ended != code or bool(stage.standing()) != (code == 0):
            yield f"a plan with {changed}: exit code {ended} with {stage.standing()}"
    state = stage.case(stood=False)
    with quiet():
        if main(["apply", *stage.files(state, digest="0" * 64), "--yes", "--force"]) != 0:
            yield "a stale plan is refused with --force"


def a25(stage):
    """Other users meddle with locks: nothing is overwritten, nothing crashes, and nobody waits for ever."""
    folder, victim = stage.folder / "locks", stage.folder / "victim"
    uuid = status(stage.folder / "none")[0].gpus[int(stage.gpus[0])].uuid
    path = folder / f"{uuid}.lock"

    def content(text):
        return lambda: path.write_text(text)

    def special(make_it):
        return lambda: (path.unlink(missing_ok=True), make_it())

    victim.write_text("keep me")
    for prepare, wanted in (
        (content(""), "applied"), (content("garbage"), "applied"), (content("[1]"), "applied"),
        (content('{"pid": 1, "released_s": "x"}'), "applied"), (content('{"state": "x"}'), "applied"),
        (special(lambda: path.symlink_to(victim)), "refused"), (special(lambda: os.mkfifo(path)), "refused"),
        (special(lambda: os.link(victim, path)), "refused"), (special(path.mkdir), "refused"),
        (lambda: (path.rmdir(), folder.chmod(0o1777)), "refused"),
    ):
        state = stage.case(stood=False)
        folder.mkdir(mode=0o700, exist_ok=True)
        prepare()
        with mock.patch.dict(os.environ, {locks.VARIABLE: str(folder)}):
            outcome, line = stage.end(lambda state=state: stage.apply(state))
        if outcome != wanted or "\n" in line or victim.read_text() != "keep me":
            yield f"case {stage.cases}: ends {outcome} {line}"
    folder.chmod(0o700)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        yield "the folder is left open"
