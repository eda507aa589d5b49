"""Who may come in, and how many at a time: the ASGI application around the application.

- Without a token a server answers only under the names of this machine itself: a page of somebody
  else whose name suddenly points here (DNS rebinding) is turned away by its Host header.
- A page of another origin is turned away by its Origin header; no answer has a CORS header.
- With a token every question needs it, compared in constant time.
- One address may have some questions open at a time (429), all together some more (503).
- A question that takes too long, or whose asker reads too slowly, is cut off.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Any

from blackout.files.plain_json import to_json
from blackout.serve.questions import Refusal

__all__ = ["Gate", "Limits", "refuse"]

_OPEN_TO_ALL = ("/", "/healthz", "/openapi.json")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
]


@dataclass(frozen=True)
class Limits:
    """How much a server does for people, all of it or for one of them."""

    body: int = 1 << 20
    """Bytes of a question (413)."""
    words: int = 2000
    """Words of a text, or of all hypotheses of a question twenty times as many (413)."""
    seconds: float = 60.0
    """For a question, from its first byte to the last of its answer (503)."""
    at_a_time: int = 64
    """Questions of one address that are open at a time (429)."""
    in_all: int = 256
    """Questions of everybody (503)."""


class Gate:
    """Wraps an ASGI application."""

    def __init__(self, app: Any, limits: Limits, token: str | None) -> None:
        self._app, self._limits, self._token = app, limits, token
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            self._check(scope)
            if scope["path"] in _OPEN_TO_ALL:
                await self._app(scope, receive, answer)
            else:
                await self._counted(scope, receive, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)

    def _check(self, scope: Any) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self._token is None and not _is_own(_name(host)):
            raise Refusal(403, "this server answers under the name localhost only")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, "questions of other pages are not answered")
        if self._token is not None and scope["path"] not in _OPEN_TO_ALL:
            kind, _, given = headers.get(b"authorization", "").partition(" ")
            right = hmac.compare_digest(given.encode("latin-1"), self._token.encode())
            if kind.lower() != "bearer" or not right:
                raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN")

    async def _counted(self, scope: Any, receive: Any, answer: _Answer) -> None:
        client = scope["client"][0] if scope.get("client") else ""
        if sum(self._open.values()) >= self._limits.in_all:
            raise Refusal(503, "the server is busy; try again", retry_after=1)
        if self._open[client] >= self._limits.at_a_time:
            most = self._limits.at_a_time
            raise Refusal(429, f"{most} questions of yours are open already", retry_after=1)
        self._open[client] += 1
        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._app(scope, receive, answer)
        except TimeoutError:
            seconds = self._limits.seconds
            refusal = Refusal(503, f"it took longer than {seconds:g} seconds", retry_after=1)
            if not answer.started:
                await answer.refuse(refusal)
            # else the connection is closed without the end of the answer: its reader can tell
        finally:
            self._open[client] -= 1
            self._open += Counter()  # addresses without open questions are forgotten


async def refuse(send: Any, refusal: Refusal) -> None:
    """Answers a question that is not let in."""
    await _Answer(send).refuse(refusal)


class _Answer:
    """``send``, with our headers; knows whether the answer has begun."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            own = [pair for pair in _HEADERS if pair[0] not in dict(message["headers"])]
            message = {**message, "headers": [*message["headers"], *own]}
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        body = to_json({"error": str(refusal)}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),  # the rest of the question may be on its way
        ]
        if refusal.retry_after is not None:
            headers.append((b"retry-after", str(refusal.retry_after).encode()))
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _is_own(name: str) -> bool:
    """Whether a name is one of this machine for itself; numbers are nobody's to point elsewhere.

    >>> [_is_own(name) for name in ("localhost", "127.0.0.2", "[::1]", "127.0.0.1.example.org")]
    [True, True, True, False]
    """
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name("localhost:8000"), _name("[::1]:8000"), _name("example.org")
    ('localhost', '[::1]', 'example.org')
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
