"""The ASGI application of guard, operations, page, jobs and store, and the server that runs it: uvicorn with this
package's logs and limits, and with a shutdown that first ends the streams of events.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from provision import InputError
from provision.draw.html import CSS
from provision.instances.files.files import read_text
from provision.service.api import openapi  # noqa: F401 - it states an operation, and imports those that do
from provision.service.api.operation import OPERATIONS, Service
from provision.service.guard import Connection, Guard
from provision.service.jobs import Jobs
from provision.service.messages import AWAY, DEFECT, refused, response
from provision.service.pool import Reader
from provision.service.settings import LOGGER, Metrics, Settings, set_up
from provision.service.store import Lease, Store
from provision.solving.methods import methods

PAGE = Path(__file__).parent / "page"
"""The files of the page."""
DAY_S = 86_400.0
LEASE_S = 5.0
"""The seconds between two looks at the lease."""


def application(settings: Settings) -> Starlette:
    """The ASGI application with these settings; the worker processes start and stop with it. Raises InputError if the
    settings are unsafe or the store cannot be opened.
    """
    settings.check()
    metrics = Metrics()
    store = Store(settings.db)
    try:
        lease = Lease(store.engine)
    except InputError:
        store.close()
        raise
    service = Service(settings, store, Jobs(settings, store, metrics), metrics, Reader(settings, store))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.jobs.news.loop = asyncio.get_running_loop()
        await run_in_threadpool(methods)
        await run_in_threadpool(service.jobs.start)
        tasks = [asyncio.create_task(_collect(service)), asyncio.create_task(_keep(lease))]
        LOGGER.info("started", extra={"fields": {"workers": settings.workers, "apply": settings.allow_apply}})
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await run_in_threadpool(service.jobs.stop)
        await run_in_threadpool(service.reader.stop)
        lease.close()
        store.close()
        LOGGER.info("stopped")

    app = Starlette(
        routes=[*(operation.route(service) for operation in OPERATIONS),
                Route("/", lambda request: FileResponse(PAGE / "index.html")),
                Route("/static/drawing.css", lambda request: Response(CSS, media_type="text/css")),
                Mount("/static", StaticFiles(directory=PAGE))],
        middleware=[Middleware(Guard, settings=settings, metrics=metrics)],
        exception_handlers={HTTPException: _http_problem, Exception: _failure},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


async def _http_problem(request: Request, error: Exception) -> Response:
    """The problem document for a request that the router refuses."""
    assert isinstance(error, HTTPException)
    return response(refused(error.status_code, error.detail).problem)


async def _failure(request: Request, error: Exception) -> Response:
    """The answer to a request that ran into a defect. The log gets the whole error; the answer tells nothing about it.
    """
    LOGGER.error("failure", exc_info=error)
    return response(refused(500, DEFECT).problem)


async def _collect(service: Service) -> None:
    """Delete old jobs and documents once a day; do nothing if the settings keep everything."""
    while service.settings.keep_days is not None:
        age_s = service.settings.keep_days * DAY_S
        try:
            jobs, documents = await run_in_threadpool(service.store.collect, age_s)
        except AWAY as error:
            LOGGER.warning("not collected", extra={"fields": {"reason": str(error.__cause__ or error)}})
        else:
            LOGGER.info("collected", extra={"fields": {"jobs": jobs, "documents": documents}})
        await asyncio.sleep(DAY_S)


async def _keep(lease: Lease) -> None:
    """See again and again that this server has the lease of its store; without it the server ends at once, since
    another one works on the same jobs.
    """
    while True:
        await asyncio.sleep(LEASE_S)
        try:
            holds = await run_in_threadpool(lease.holds)
        except AWAY:
            continue  # nobody can take the lease of a store that does not answer
        if not holds:
            LOGGER.error("another server took the store", extra={"fields": {"db": lease.where}})
            os.kill(os.getpid(), signal.SIGTERM)
            return


STOP_S = 5
"""The most seconds that a shutdown waits for open requests."""
IDLE_S = 30
CONNECTIONS = 1000


class Server(uvicorn.Server):
    """uvicorn's server, except that a signal first ends the streams of events, since open streams would delay the
    shutdown.
    """

    app: Starlette

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen, and print the address."""
        await super().startup(sockets)
        if self.started:
            print(f"provision serves on {address(self.config)} (Ctrl-C ends it)", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down; at the second signal, stop waiting for open requests. It replaces uvicorn's handler,
        after which the exit code would not be 0.
        """
        jobs = self.app.state.service.jobs
        jobs.stopping = True
        jobs.news.tell_all()
        self.force_exit = self.should_exit
        self.should_exit = True


def address(config: uvicorn.Config) -> str:
    """The address of the page, which a browser on this machine can open."""
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
    return f"{'https' if config.is_ssl else 'http'}://{f'[{host}]' if ':' in host else host}:{config.port}/"


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises InputError if the settings are unsafe, or the address, the certificate or
    the store cannot be used.
    """
    set_up()
    app = application(settings)
    for path in filter(None, (settings.tls_cert, settings.tls_key)):
        read_text(path)
    config = uvicorn.Config(
        app, settings.host, settings.port, log_config=None, access_log=False, server_header=False,
        ssl_certfile=settings.tls_cert, ssl_keyfile=settings.tls_key, timeout_graceful_shutdown=STOP_S,
        timeout_keep_alive=IDLE_S, limit_concurrency=CONNECTIONS, h11_max_incomplete_event_size=32_768,
        http=Connection, ws="none",
    )
    server = Server(config)
    server.app = app
    try:
        server.run()
    except SystemExit:
        if server.lifespan.should_exit:
            raise InputError("the server did not start; its log says why") from None
        raise InputError(f"{settings.host}:{settings.port}: cannot be listened on; choose another --port") from None
