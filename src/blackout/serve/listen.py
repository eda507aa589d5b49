"""A listening socket and the server on it: uvicorn, which hangs up on those who say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from blackout.errors import UserError
from blackout.serve.gate import Gate

__all__ = ["Server", "bind", "is_own"]

_FIRST_WORDS = 20.0  # seconds from a connection's beginning to the end of its first headers
_GRACE = 5  # seconds for open questions after Ctrl-C


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; a port that is taken is an error that says so."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"host {host}: not an address of this machine: {reason}") from None
    listening = socket.socket(family, kind)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use; --port 0 takes one that is free") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserError(f"host {host}: not an address of this machine") from None
        raise UserError(f"port {port}: {error.strerror}") from None
    return listening


def is_own(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    address = listening.getsockname()[0]
    return address == "::1" or address.startswith("127.")


class _Protocol(H11Protocol):
    """HTTP/1.1; a connection whose first headers do not come is closed."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(_FIRST_WORDS, self._close_silent)

    def _close_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


class Server(uvicorn.Server):
    """Runs an application on a socket until Ctrl-C, or until :meth:`stop`."""

    def __init__(self, app: Gate, listening: socket.socket) -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            http=_Protocol,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE,
            limit_concurrency=2000,
        )
        super().__init__(config)
        self._listening = listening

    def serve_forever(self) -> None:
        """Returns after Ctrl-C, when open questions are answered or some seconds have passed."""
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            self.run(sockets=[self._listening])

    def stop(self) -> None:
        """Ends :meth:`serve_forever`; from any thread."""
        self.should_exit = True
