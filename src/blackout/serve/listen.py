"""A listening socket and the server on it: uvicorn, which hangs up on those who say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from blackout.errors import UserError
from blackout.files.plain_json import to_json
from blackout.serve.gate import Gate, refuse
from blackout.serve.questions import Refusal

__all__ = ["Server", "bind", "is_own"]

_PATIENCE = 20.0  # seconds for the headers of a question, and for the rest of an answer on its way
_CONNECTIONS = 2000  # more are told to try again
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
    """HTTP/1.1; a client on whom nothing waits but itself is hung up on after some seconds."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._gate, self.app = self.app, self._answered
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._patience is not None:
            self._patience.cancel()

    async def _answered(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if len(self.connections) > _CONNECTIONS:
                busy = Refusal(503, "the server has too many visitors; try again", retry_after=1)
                await refuse(send, busy)
            else:
                await self._gate(scope, receive, send)
        finally:
            self._wait()

    def _wait(self) -> None:
        """From now on it is the client's turn: to read its answer, to ask its next question."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(_PATIENCE, self._hang_up)

    def _hang_up(self) -> None:
        asked = self.cycle is not None and not self.cycle.response_complete
        if not asked or self.transport.is_closing():
            self.transport.abort()  # with what it has not read

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all; uvicorn would say it in plain text."""
        body = to_json({"error": "this is not a question in HTTP"}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        events = [
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer has begun already
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
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
            timeout_keep_alive=int(_PATIENCE),
            timeout_graceful_shutdown=_GRACE,
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
