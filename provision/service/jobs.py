"""The life of a job: submitted, queued, carried out, perhaps cancelled, queued again after a restart."""

import asyncio
import json
import secrets
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from starlette.concurrency import run_in_threadpool

from provision.models.base.clock import Deadline
from provision.service.messages import AWAY, DEFECT, ENDED, refused
from provision.service.processes import Work, end, send_signal, started, work
from provision.service.settings import LOGGER, Metrics, Settings
from provision.service.store import Store

MOST_RESTARTS = 2
"""The most times that a job is started again after its process or the server died while it ran."""
AGAIN_S = 1.0
"""The seconds after which a store that did not answer is asked again."""
T = TypeVar("T")


class Jobs:
    """The jobs of a server: a thread for each that runs, which has a process carry it out, and a queue of others."""

    def __init__(self, settings: Settings, store: Store, metrics: Metrics):
        self.settings, self.store, self.metrics = settings, store, metrics
        self.threads = ThreadPoolExecutor(settings.workers)
        self.folder = tempfile.TemporaryDirectory(prefix="provision-")
        self.waiting: set[str] = set()
        self.running: set[str] = set()
        self.cancelled: set[str] = set()
        self.stopping = False
        self.away = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.news: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        metrics.watch(lambda: len(self.waiting), lambda: len(self.running), lambda: settings.workers)

    def start(self) -> None:
        """Queue unfinished jobs; jobs that were started too often are marked as failed."""
        forkserver.ensure_running()
        for id in self.store.unfinished():
            row = self.store.job(id)
            if row is not None and row.begun > MOST_RESTARTS:
                self._fail(id, "the server stopped again and again while this job ran")
            else:
                self._queue(id)

    def stop(self) -> None:
        """Interrupt running jobs and wait for their end; they are queued again at the next start."""
        self.stopping = True
        self.threads.shutdown(cancel_futures=True)
        self.folder.cleanup()

    def submit(self, verb: str, instance: str, request: Mapping[str, Any], used: Mapping[str, str]) -> str:
        """Queue a new job with the documents of these digests, by role. Raises RefusedError if there are too many."""
        if self.stopping:
            raise refused(503, "the server is stopping; try again in a minute")
        if len(self.waiting) >= self.settings.queue:
            raise refused(429, f"{self.settings.queue} jobs are waiting; try again when some have ended")
        id = secrets.token_hex(8)
        self.store.add_job(id, verb, instance, request, used)
        self.metrics.submitted.labels(verb).inc()
        self._queue(id)
        return id

    def cancel(self, id: str) -> None:
        """Cancel a job, which keeps its best plan. Raises RefusedError while it puts a plan on GPUs."""
        row = self.store.job(id)
        if row is not None and row.verb == "apply" and row.status == "running":
            raise refused(409, "a plan is being put on GPUs; wait for its end and roll back then")
        self.cancelled.add(id)
        if self.store.move(id, "cancelled", of=["queued"]):
            self._settled(id)

    def _stored(self, act: Callable[[], T]) -> T | None:
        """What ``act`` does with the store, tried until that answers; None if the server stops meanwhile."""
        while True:
            try:
                result = act()
                self.away = False
                return result
            except AWAY as error:
                if not self.away:
                    reason = str(error.__cause__ or error)
                    LOGGER.warning("the store does not answer", extra={"fields": {"reason": reason}})
                self.away = True
                if self.stopping:
                    return None
                time.sleep(AGAIN_S)

    def _carry_out(self, id: str) -> None:
        """Have a process carry out a job; whatever goes wrong, the job ends."""
        try:
            job = self._begin(id)
            if job is not None:
                last = Run(self, id).outcome(job)
                self._stored(lambda: self._end(id, *last))
        except Exception as error:
            LOGGER.error("failure", exc_info=error, extra={"fields": {"job": id}})
            self._stored(lambda: self._end(id, "problem", {"status": 500, "detail": DEFECT}))

    def _begin(self, id: str) -> Work | None:
        """Record that a job begins; returns its Work, or None if the job was cancelled in the meantime."""
        self.waiting.discard(id)
        if not self._stored(lambda: self.store.move(id, "running", of=["queued", "running"], begin=True)):
            return None
        self.running.add(id)
        self._wake(id)
        row = self._stored(lambda: self.store.job(id))
        if row is None:
            return None
        given = self._stored(lambda: [self._used(id, role) for role in ("instance", "given")])
        return None if given is None else Work(row.verb, json.loads(row.request), *given)

    def tell(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """Record an event of a job."""
        self._stored(lambda: self.store.tell(id, kind, content))
        self._wake(id)

    def _end(self, id: str, kind: str, content: dict[str, Any]) -> None:
        asked = id in self.cancelled
        cut = kind != "result" or content.get("termination") == "stopped" or content.get("complete") is False
        if self.stopping and not asked and kind != "problem" and cut:
            self._settled(id)  # the job is queued again at the next start
        elif kind == "result":
            self.store.move(id, "cancelled" if asked else "done", of=["running"], made=self._kept(id, content))
        elif kind == "problem":
            problem = refused(content["status"], content["detail"]).problem
            self.store.move(id, "failed", of=["running"], problem=problem.model_dump(mode="json"))
        elif asked:
            self.store.move(id, "cancelled", of=["running"])
        elif kind == "cancelled":
            self._fail(id, f"nothing was found within {self.settings.job_s:g} s, the most that a job may take here")
        elif (row := self.store.job(id)) is not None and row.begun <= MOST_RESTARTS:
            self._queue(id)
            return
        else:
            self._fail(id, "its process died again and again, probably of memory; make the instance smaller")
        self._settled(id)

    def _fail(self, id: str, detail: str) -> None:
        problem = refused(500, detail).problem.model_dump(mode="json")
        self.store.move(id, "failed", of=["queued", "running"], problem=problem)

    def _queue(self, id: str) -> None:
        self.waiting.add(id)
        self.running.discard(id)
        with suppress(RuntimeError):  # the server stops
            self.threads.submit(self._carry_out, id)
        self._wake(id)

    def _settled(self, id: str) -> None:
        """Forget a job on which this server will not work any more, and count it if it has ended."""
        for ids in (self.waiting, self.running, self.cancelled):
            ids.discard(id)
        row = self.store.job(id)
        if row is not None and row.status in ENDED:
            self.metrics.ended.labels(row.verb, row.status).inc()
            if row.started_s:
                self.metrics.job_seconds.labels(row.verb).observe(max(0.0, row.ended_s - row.started_s))
        self._wake(id)

    def _used(self, id: str, role: str) -> Any:
        digest = self.store.used([id], role).get(id)
        return self.store.document(digest) if digest else None

    def _kept(self, id: str, result: dict[str, Any]) -> dict[str, str]:
        """Store a result with digests in place of its plans, and those; returns all digests by role."""
        made, stored = {}, []
        for number, holder in enumerate([result, *result.get("rows", [])]):
            rest = {name: value for name, value in holder.items() if name != "plan"}
            if plan := holder.get("plan"):
                role = f"plan-{number}" if number else "plan"
                made[role] = rest["plan_digest"] = self.store.keep("plan", plan["instance"], plan)
            stored.append(rest)
        whole = stored[0] | ({"rows": stored[1:]} if "rows" in result else {})
        return made | {"result": self.store.keep("result", id, whole)}

    def _wake(self, id: str) -> None:
        """Wake the streams of a job's events."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.wake, id)

    def wake(self, *ids: str) -> None:
        """Wake the streams of these jobs' events, on the event loop."""
        for id in ids:
            if news := self.news.pop(id, None):
                news.set()


LAST = {"result", "cancelled", "problem"}
"""The kinds of a job's last message."""
TICK_S, PAUSE_S = 0.2, 0.1
"""The seconds between two looks at a job, and those in which of several messages of a kind only the last counts."""
GRACE_S = 60.0
"""The most seconds that a process may take to start, and an interrupted one to end; busy machines are slow."""


class Run:
    """A job that a process carries out. What the process told last of its plan and its result outlives it."""

    def __init__(self, jobs: Jobs, id: str):
        self.jobs, self.id, self.interrupted = jobs, id, False
        self.plan: Any = None
        self.kept: dict[str, Any] | None = None
        self.told: dict[str, Any] = {}

    def outcome(self, job: Work) -> tuple[str, dict[str, Any]]:
        """The last message, or ``died``. Without one, what was told to keep counts, or the job begins once more."""
        kind, content = self._performed(job)
        if kind == "died" and self.interrupted and self.kept is None and not self.jobs.stopping:
            kind, content = self._performed(job._replace(plan=self.plan or job.plan))
        keeps = kind == "cancelled" or (kind == "died" and self.interrupted)
        return (kind, content) if self.kept is None or not keeps else ("result", self.kept)

    def _performed(self, job: Work) -> tuple[str, dict[str, Any]]:
        with suppress(EOFError, OSError):
            process, pipe = started(work, job, self.jobs.settings.memory_gib, self.jobs.folder.name)
            try:
                if pipe.poll(GRACE_S):
                    return self._heard(process, pipe)
            finally:
                end(process, pipe)
        return "died", {}

    def _heard(self, process: Any, pipe: Connection) -> tuple[str, dict[str, Any]]:
        """The last message; others are passed on. A job that is cancelled or too long is interrupted, then left."""
        deadline, signalled = Deadline(self.jobs.settings.job_s), False
        while True:
            for kind, content in received(pipe).items():
                if kind in LAST:
                    return kind, content
                self._hear(kind, content)
            late = self.jobs.stopping or self.id in self.jobs.cancelled or deadline.over
            if late and not signalled:
                signalled = self.interrupted = True
                deadline = Deadline(GRACE_S)
                send_signal(process, signal.SIGINT)
            elif signalled and deadline.over:
                return "died", {}

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "keep":
            self.kept = content["result"]
        elif kind == "plan":
            self.plan = content["plan"]
        elif kind != "ready" and self.told.get(kind) != (news := content | {"seconds": None}):
            self.told[kind] = news
            self.jobs.tell(self.id, kind, content)


def received(pipe: Connection) -> dict[str, dict[str, Any]]:
    """The messages that come within TICK_S, and within PAUSE_S after the first of them; of each kind the last."""
    heard: dict[str, dict[str, Any]] = {}
    try:
        while LAST.isdisjoint(heard) and pipe.poll(0.0 if heard else TICK_S):
            kind, content = pipe.recv()
            if not heard and kind not in LAST:
                time.sleep(PAUSE_S)
            heard[kind] = content
    except (EOFError, OSError):
        if not heard:
            raise
    return heard


QUIET_S = 15.0
"""The seconds without events after which a comment tells the client that the connection is alive."""


async def stream(jobs: Jobs, id: str, after: int) -> AsyncIterator[str]:
    """Yield the events of a job with numbers above ``after``, as text; the last event is ``end`` with the job's status.
    """
    while True:
        news = jobs.news.setdefault(id, asyncio.Event())
        try:
            row = await run_in_threadpool(jobs.store.job, id)
            events = await run_in_threadpool(jobs.store.events, id, after)
        except AWAY:
            if jobs.stopping:
                return
            yield ": the store does not answer\n\n"
            await asyncio.sleep(AGAIN_S)
            continue
        for event in events:
            after = event.id
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {event.content}\n\n"
        if row is None or row.status in ENDED:
            status = row.status if row is not None else "deleted"
            yield f"event: end\ndata: {json.dumps({'status': status})}\n\n"
            return
        if jobs.stopping:
            return
        try:
            await asyncio.wait_for(news.wait(), QUIET_S)
        except TimeoutError:
            yield ": still here\n\n"
