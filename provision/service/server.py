"""The server: uvicorn with this package's logs and limits, and with a shutdown that first ends the streams of events.
"""

from socket import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from provision import InputError
from provision.instances.files.files import read_text
from provision.service.app import application
from provision.service.watch.guard import Connection
from provision.service.watch.settings import Settings, set_up

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
    """Serve until SIGTERM or Ctrl-C.

    Raises
    ------
    InputError
        If the settings are unsafe, or the address, the certificate or the store cannot be used.
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

