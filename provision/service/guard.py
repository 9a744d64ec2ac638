"""The guard of the application, its outermost layer: access and limits, before a request is parsed."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from uvicorn.protocols.http.h11_impl import H11Protocol

from provision.models.base.clock import Stopwatch
from provision.service.messages import RefusedError, refused, response
from provision.service.settings import LOGGER, Metrics, Settings

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = ("/", "/healthz", "/api/v1/openapi.json")
"""Paths that need no token, since they show no user's data. Paths under ``/static/`` need none either."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
"""The HTTP methods that are counted by name; any other method counts as "other"."""
BODY_S = 20.0
"""The most seconds to wait for the next part of a request's body."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Attributes ``style`` say where the boxes of a drawing stand; like anything else, they can load nothing."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Checks host, origin and token of a request, bounds its body, sets the headers of the answer, counts and logs."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics):
        self.app, self.settings, self.metrics = app, settings, metrics
        self.held_bytes = 0
        self.hosts = {"localhost", "127.0.0.1", "[::1]", settings.host, f"[{settings.host}]", *settings.names}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let a request through or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        watch, status, taken, whole = Stopwatch(), 500, 0, False

        async def received() -> Message:
            """A part of the body. Too much of it, alone or with those of other requests, is refused, as is a stop."""
            nonlocal taken, whole
            try:
                message = await (receive() if whole else asyncio.wait_for(receive(), BODY_S))
            except TimeoutError:
                raise refused(408, f"body: nothing of it came for {BODY_S:g} s") from None
            whole = not message.get("more_body", False)
            size = len(message.get("body", b""))
            taken += size
            self.held_bytes += size
            if taken > self.settings.body_bytes:
                raise self._too_large()
            if self.held_bytes > self.settings.bodies_bytes:
                raise refused(503, f"the requests at work hold {self.settings.bodies_mib} MiB together, as much as is "
                              "taken here; try again in a few seconds")
            return message

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, received, sent)
        except RefusedError as error:
            await response(error.problem)(scope, receive, sent)
        finally:
            self.held_bytes -= taken
            self._count(scope, status, watch.elapsed_s)

    def _check(self, scope: Message) -> None:
        """Refuse foreign host names (DNS rebinding), pages of other sites, wrong tokens, and large bodies."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host  # without the port
        if self.settings.token is None and name not in self.hosts:
            raise refused(421, "this host name is not served here; start the server with --name to allow it")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise refused(403, "requests from the pages of other sites are refused")
        if not self._known(scope["path"], headers.get("authorization", "")):
            raise refused(401, "a token is needed: Authorization: Bearer TOKEN")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise refused(400, "content-length: should be a number")
        if len(length) > 15 or int(length) > self.settings.body_bytes:
            raise self._too_large()

    def _known(self, path: str, authorization: str) -> bool:
        """Whether a request has the right token or needs none. Tokens are compared in constant time."""
        if self.settings.token is None or path in OPEN or path.startswith("/static/"):
            return True
        scheme, _, given = authorization.partition(" ")
        same = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self.settings.token.encode())
        return same and scheme.lower() == "bearer"

    def _too_large(self) -> RefusedError:
        return refused(413, f"body: larger than the {self.settings.body_mib} MiB that are taken here")

    def _count(self, scope: Message, status: int, seconds: float) -> None:
        route = scope.get("template", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(method, route, status).inc()
        self.metrics.request_seconds.labels(route).observe(seconds)
        fields = {"method": method, "route": route, "status": status, "ms": round(seconds * 1000, 2)}
        LOGGER.log(logging.ERROR if status >= 500 else logging.INFO, "request", extra={"fields": fields})


HEADER_S = 10.0
"""The most seconds from the first byte of a request, or from the beginning of a connection, to the header's end."""
MOST_OF_PEER = 500
"""The most connections of one address."""
MOST = 900
"""The most connections of all."""


class Connection(H11Protocol):
    """A connection, closed if no header comes within HEADER_S. One too many closes the one that has waited longest."""

    waits_since = 0.0
    """When the connection began to wait for a request, by the clock of the event loop."""
    header_since: float | None = None
    """When it began to wait for the rest of a header; None if it does not."""

    @property
    def waits(self) -> bool:
        """Whether the connection has no request at work."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; if there are too many connections, close one of them."""
        super().connection_made(transport)
        self.waits_since = self.header_since = self.loop.time()
        self.loop.call_later(HEADER_S, self._look)
        everyone = [one for one in self.connections if isinstance(one, Connection)]
        of_peer = [one for one in everyone if one.client and self.client and one.client[0] == self.client[0]]
        for connections, most in ((of_peer, MOST_OF_PEER), (everyone, MOST)):
            if len(connections) > most:
                waiting = [one for one in connections if one.waits and one is not self]
                min(waiting, key=lambda one: one.waits_since, default=self).close()
                return

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request; the first part of a header starts its time limit."""
        if self.waits and self.header_since is None:
            self.waits_since = self.header_since = self.loop.time()
            self.loop.call_later(HEADER_S, self._look)
        super().data_received(data)
        if not self.waits:
            self.header_since = None

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def close(self) -> None:
        """Close the connection at once, without an answer."""
        self.connections.discard(self)
        self.transport.abort()

    def _look(self) -> None:
        """Close the connection if a header has been waited for so long; timers may be a little early."""
        if self.waits and self.header_since is not None and self.loop.time() > self.header_since + 0.9 * HEADER_S:
            self.close()
