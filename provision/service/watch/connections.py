"""Bounds what connections may cost before a request is known: the time for a request's header, and their number.

A connection that waits for a request is closed when it has waited too long, and before others when there are too many.
So connections on which nothing happens keep nobody out.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""The most seconds from the first byte of a request, or from the beginning of a connection, to the header's end."""
MOST_OF_PEER = 500
"""The most connections of one address."""
MOST = 900
"""The most connections of all."""


class Connection(H11Protocol):
    """A connection of uvicorn that is closed if the header of a request does not come within HEADER_S.

    If there are more than MOST_OF_PEER connections of its address, or more than MOST in all, when it is made, it closes
    the other connection that has waited longest for a request; if no other waits, it closes itself.
    """

    timer: asyncio.TimerHandle | None = None
    waits_since = 0.0
    """When the connection began to wait for a request, by the clock of the event loop."""

    @property
    def waits(self) -> bool:
        """Whether the connection has no request at work."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; if there are too many connections, close one of them."""
        super().connection_made(transport)
        self._expect_header()
        everyone = [one for one in self.connections if isinstance(one, Connection)]
        of_peer = [one for one in everyone if one.client and self.client and one.client[0] == self.client[0]]
        for connections, most in ((of_peer, MOST_OF_PEER), (everyone, MOST)):
            if len(connections) > most:
                waiting = [one for one in connections if one.waits and one is not self]
                min(waiting, key=lambda one: one.waits_since, default=self).close()
                return

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time limit."""
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request; the first part of a header starts its time limit."""
        if self.waits and self.timer is None:
            self._expect_header()
        super().data_received(data)
        if not self.waits:
            self._forget_timer()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def close(self) -> None:
        """Close the connection at once, without an answer."""
        self.connections.discard(self)
        self.transport.abort()

    def _expect_header(self) -> None:
        self.waits_since = self.loop.time()
        self.timer = self.loop.call_later(HEADER_S, self._late)

    def _late(self) -> None:
        if self.waits:
            self.close()

    def _forget_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
