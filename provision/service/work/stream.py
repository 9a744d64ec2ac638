"""Streams the events of a job as server-sent events: the past events first, then new events, until the job ends."""

import asyncio
import json
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from provision.service.messages.answers import ENDED
from provision.service.messages.problems import AWAY
from provision.service.work.jobs import AGAIN_S, Jobs

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
