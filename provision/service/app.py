"""The ASGI application, and its server: uvicorn with this package's logs and limits, which ends open streams."""

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
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import provision.service.api.instances
import provision.service.api.jobs  # noqa: F401 - likewise
from provision import InputError
from provision.draw.html import CSS
from provision.instances.files.files import read_text
from provision.service.api.operation import OPERATIONS, Service
from provision.service.guard import Connection, Guard
from provision.service.jobs import Jobs
from provision.service.messages import AWAY, DEFECT, EXPECTED, problem_of, refused, response
from provision.service.processes import CONTEXT, Reader
from provision.service.settings import LOGGER, Metrics, Settings, set_up
from provision.service.store import Lease, Store
from provision.solving.methods import methods

methods()
CONTEXT.set_forkserver_preload([__name__])  # it has loaded what jobs need: verbs, methods, and this
PAGE = Path(__file__).parent / "page"
"""The files of the page."""
DAY_S = 86_400.0
LEASE_S = 5.0
"""The seconds between two looks at the lease."""


def application(settings: Settings) -> Starlette:
    """The ASGI application. Raises InputError if the settings are unsafe or the store cannot be opened."""
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
        service.jobs.loop = asyncio.get_running_loop()
        await run_in_threadpool(service.jobs.start)
        tasks = [asyncio.create_task(_collect(service)), asyncio.create_task(_keep(lease))]
        LOGGER.info("started", extra={"fields": {"workers": settings.workers, "apply": settings.allow_apply}})
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await run_in_threadpool(service.jobs.stop)
        lease.close()
        store.close()
        LOGGER.info("stopped")

    app = Starlette(
        routes=[*(operation.route(service) for operation in OPERATIONS),
                Route("/", lambda request: FileResponse(PAGE / "index.html")),
                Route("/static/drawing.css", lambda request: Response(CSS, media_type="text/css")),
                Mount("/static", StaticFiles(directory=PAGE))],
        middleware=[Middleware(Guard, settings=settings, metrics=metrics)],
        exception_handlers=dict.fromkeys((*EXPECTED, Exception), _problem),
        lifespan=lifespan,
    )
    app.state.service = service
    return app


async def _problem(request: Request, error: Exception) -> Response:
    """The problem document for an error. The log gets the whole of a defect; the answer tells nothing about it."""
    problem = problem_of(error)
    if problem is None:
        LOGGER.error("failure", exc_info=error)
        problem = refused(500, DEFECT).problem
    return response(problem)


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
    """End this server when another one has the lease of its store, and so works on the same jobs."""
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
    """uvicorn's server, except that a signal first ends the streams of events, which would delay the shutdown."""

    app: Starlette

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begin to listen, and print the address."""
        await super().startup(sockets)
        if self.started:
            print(f"provision serves on {address(self.config)} (Ctrl-C ends it)", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down, at a second signal at once. uvicorn's own handler would leave an exit code beside 0."""
        jobs = self.app.state.service.jobs
        jobs.stopping = True
        jobs.wake(*jobs.news)
        self.force_exit = self.should_exit
        self.should_exit = True


def address(config: uvicorn.Config) -> str:
    """The address of the page, which a browser on this machine can open."""
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
    return f"{'https' if config.is_ssl else 'http'}://{f'[{host}]' if ':' in host else host}:{config.port}/"


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises InputError if address, certificate, store or settings are no good."""
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
