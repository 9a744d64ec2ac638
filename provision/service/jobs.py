"""The life of a job: it is submitted, queued, carried out, perhaps cancelled, and queued again after a restart of the
server.
"""

import asyncio
import json
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from provision.service.messages import AWAY, ENDED, refused
from provision.service.pool import Pool, Work
from provision.service.settings import LOGGER, Metrics, Settings
from provision.service.store import Store

MOST_RESTARTS = 2
"""The most times that a job is started again after its worker or the server died while it ran."""
AGAIN_S = 1.0
"""The seconds after which a store that did not answer is asked again."""
T = TypeVar("T")


class Jobs:
    """Connects the HTTP interface, the store and the pool of workers."""

    def __init__(self, settings: Settings, store: Store, metrics: Metrics):
        self.settings, self.store, self.metrics = settings, store, metrics
        self.pool = Pool(self, settings.workers, settings.job_s, settings.memory_gib)
        self.waiting: set[str] = set()
        self.running: set[str] = set()
        self.cancelled: set[str] = set()
        self.stopping = False
        self.away = False
        self.untold: defaultdict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        self.lock = threading.Lock()
        self.news = News()
        metrics.watch(lambda: len(self.waiting), lambda: len(self.running), lambda: self.pool.alive)

    def start(self) -> None:
        """Start the workers and queue unfinished jobs; jobs that were started too often are marked as failed."""
        for id in self.store.unfinished():
            row = self.store.job(id)
            if row is not None and row.begun > MOST_RESTARTS:
                self._fail(id, "the server stopped again and again while this job ran")
            else:
                self._queue(id)
        self.pool.start()

    def stop(self) -> None:
        """Interrupt running jobs and stop the workers; the interrupted jobs are queued again at the next start."""
        self.stopping = True
        self.pool.stop()

    def submit(self, verb: str, instance: str, request: Mapping[str, Any], used: Mapping[str, str]) -> str:
        """Queue a new job; ``used`` has the digests of the documents that it is given, by role. Returns the job's id.
        Raises RefusedError if the queue is full, or the server is stopping.
        """
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
        """Cancel a job; a running job keeps the best plan that it has found. Raises RefusedError if the job is putting
        a plan on GPUs, which must not stop halfway.
        """
        row = self.store.job(id)
        if row is not None and row.verb == "apply" and row.status == "running":
            raise refused(409, "a plan is being put on GPUs; wait for its end and roll back then")
        self.cancelled.add(id)
        if self.store.move(id, "cancelled", of=["queued"]):
            self._settled(id)
        else:
            self.pool.interrupt(id)

    def _stored(self, act: Callable[[], T]) -> T | None:
        """What ``act`` does with the store; while the store does not answer, it is tried again and again. None if the
        server stops meanwhile: then the job is queued again at the next start.
        """
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

    def begin(self, id: str) -> Work | None:
        """Record that a worker begins a job; returns the job's Work, or None if the job was cancelled in the meantime.
        """
        with self.lock:
            self.waiting.discard(id)
            self.running.add(id)
        moved = self._stored(lambda: self.store.move(id, "running", of=["queued", "running"], begin=True))
        if not moved:
            self._stored(lambda: self._settled(id))
            return None
        self.news.tell(id)
        return self._stored(lambda: self._work(id))

    def _work(self, id: str) -> Work:
        row = self.store.job(id)
        assert row is not None
        return Work(row.verb, json.loads(row.request), self._used(id, "instance"), self._used(id, "given"))

    def tell(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """Record an event that a worker reports about a job; while the store does not answer, events wait."""
        self.untold[id].append((kind, content))
        try:
            self._tell_all(id)
        except AWAY:
            self.away = True

    def _tell_all(self, id: str) -> None:
        waiting = self.untold[id]
        while waiting:
            self.store.tell(id, *waiting[0])
            waiting.pop(0)
        self.away = False
        self.news.tell(id)

    def end(self, id: str, kind: str, content: dict[str, Any]) -> None:
        """Record that a worker has ended a job, with the kind and content of the worker's last message."""
        self._stored(lambda: self._tell_all(id))
        self.untold.pop(id, None)
        self._stored(lambda: self._end(id, kind, content))

    def _end(self, id: str, kind: str, content: dict[str, Any]) -> None:
        asked = id in self.cancelled
        if self.stopping and not asked and kind != "problem" and not _finished(kind, content):
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
            self._fail(id, "the worker died again and again, probably of memory; make the instance smaller")
        self._settled(id)

    def _fail(self, id: str, detail: str) -> None:
        problem = refused(500, detail).problem.model_dump(mode="json")
        self.store.move(id, "failed", of=["queued", "running"], problem=problem)

    def _queue(self, id: str) -> None:
        with self.lock:
            self.running.discard(id)
            self.waiting.add(id)
        self.pool.queue.put(id)
        self.news.tell(id)

    def _settled(self, id: str) -> None:
        """Forget a job on which this server will not work any more, and count it if it has ended."""
        with self.lock:
            self.waiting.discard(id)
            self.running.discard(id)
            self.cancelled.discard(id)
        row = self.store.job(id)
        if row is not None and row.status in ENDED:
            self.metrics.ended.labels(row.verb, row.status).inc()
            if row.started_s:
                self.metrics.job_seconds.labels(row.verb).observe(max(0.0, row.ended_s - row.started_s))
        self.news.tell(id)

    def _used(self, id: str, role: str) -> Any:
        digest = self.store.used([id], role).get(id)
        found = self.store.document(digest) if digest else None
        return found and found.content

    def _kept(self, id: str, result: dict[str, Any]) -> dict[str, str]:
        """Store a result: the plans as documents of their own, and the rest with the plans' digests in their place.

        Returns digests by role.
        """
        made, stored = {}, []
        for number, holder in enumerate([result, *result.get("rows", [])]):
            rest = {name: value for name, value in holder.items() if name != "plan"}
            if plan := holder.get("plan"):
                role = f"plan-{number}" if number else "plan"
                made[role] = rest["plan_digest"] = self.store.keep("plan", plan["instance"], plan)
            stored.append(rest)
        whole = stored[0] | ({"rows": stored[1:]} if "rows" in result else {})
        return made | {"result": self.store.keep("result", id, whole)}


class News:
    """Wakes the streams of a job's events when there are new events."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.listeners: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def tell(self, id: str) -> None:
        """Wake the streams of a job's events; it may be called from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._set, id)

    def tell_all(self) -> None:
        """Wake the streams of all jobs."""
        for id in list(self.listeners):
            self._set(id)

    def _set(self, id: str) -> None:
        for listener in self.listeners.get(id, ()):
            listener.set()


def _finished(kind: str, content: Mapping[str, Any]) -> bool:
    """Whether a job ended with a whole result, rather than early because the server stops."""
    cut = content.get("termination") == "stopped" or content.get("complete") is False
    return kind == "result" and not cut


QUIET_S = 15.0
"""The seconds without events after which a comment tells the client that the connection is alive."""


async def stream(jobs: Jobs, id: str, after: int) -> AsyncIterator[str]:
    """Yield the events of a job with numbers above ``after``, as text; the last event is ``end`` with the job's status.
    """
    news = asyncio.Event()
    listeners = jobs.news.listeners[id]
    listeners.add(news)
    try:
        while True:
            news.clear()
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
                after = event.number
                yield f"id: {event.number}\nevent: {event.kind}\ndata: {json.dumps(event.content)}\n\n"
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
    finally:
        listeners.discard(news)
        if not listeners:
            jobs.news.listeners.pop(id, None)
