"""Connections to the page: few at once, and each with a limit of time for its request and its answer.

The search has the same limit of open files as the server in its process, so a client that opens connections must not
use it up.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0  # until a request is complete, on a new or idle connection
ANSWER_S = 120.0  # until it is answered, as with a film over a slow network
BACKLOG = 16  # connections that are accepted before the first of them is handled
_MOST, _SHARE = 64, 8  # connections; the limit of open files is at least so many times as large
_log = logging.getLogger("uvicorn.error.vote")
_log.setLevel(logging.ERROR)  # malformed requests are not worth a warning


def most_connections() -> int:
    """Return how many connections are open at once: a share of the files that this process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else max(4, min(_MOST, files // _SHARE))


class Connection(H11Protocol):
    """One connection. If there are too many, the one that has kept the server waiting longest is closed."""

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.logger = _log
        self._waits = True  # for a request
        self._timer: asyncio.TimerHandle | None = None
        self._since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._allow(HEADER_S, waits=True)
        if len(self.connections) > most_connections():
            waiting = [c for c in self.connections if isinstance(c, Connection) and c._waits]
            min(waiting, key=lambda c: c._since, default=self).end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._allow(ANSWER_S, waits=False)

    def on_response_complete(self) -> None:
        self._allow(HEADER_S, waits=True)
        super().on_response_complete()  # which may begin with the next request

    def end(self) -> None:
        self._waits = False
        self.connections.discard(self)
        self.transport.abort()

    def _allow(self, seconds: float, *, waits: bool) -> None:
        """End the connection unless its next step comes within `seconds`. waits: whether that is a request."""
        if self._timer:
            self._timer.cancel()
        self._waits, self._since = waits, self.loop.time()
        self._timer = self.loop.call_later(seconds, self.end)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade, as to a websocket, is answered like any other request."""
