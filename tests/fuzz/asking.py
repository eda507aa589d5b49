"""The HTTP application without a network: bytes of a question in, a status and an answer out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from blackout.models import load
from blackout.ngram import NGram
from blackout.serve.app import application
from blackout.serve.gate import Limits
from blackout.serve.shelf import Shelf

PATHS = ("/v1/score", "/v1/next", "/v1/generate", "/v1/rescore", "/v1/near")


class Asking:
    """A server's application over a network, an n-gram, and both of them mixed."""

    def __init__(self, network: Any, ngram: Any, words: int = 200) -> None:
        """``words``: the most of a question."""
        shelf = Shelf([("net", load(network))], ("ngram", NGram.load(ngram)), [0.5])
        self._app = application(shelf, Limits(words=words))
        self._loop = asyncio.new_event_loop()
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        """What a server does before the first question."""
        heard: asyncio.Queue[Any] = asyncio.Queue()

        async def send(message: Any) -> None:
            await heard.put(message)

        self._life = asyncio.ensure_future(
            self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._told.get, send)
        )
        await self._told.put({"type": "lifespan.startup"})
        assert (await heard.get())["type"] == "lifespan.startup.complete"

    def ask(self, path: str, body: bytes) -> tuple[int, list[Any]]:
        """The status, and each line of the answer as what its JSON means."""
        return self._loop.run_until_complete(self._ask(path, body))

    def close(self) -> None:
        """What a server does at its end."""
        self._loop.run_until_complete(self._told.put({"type": "lifespan.shutdown"}))
        self._loop.run_until_complete(self._life)
        self._loop.close()

    async def _ask(self, path: str, body: bytes) -> tuple[int, list[Any]]:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }  # fmt: skip
        half = len(body) // 2
        parts = [(body[:half], True), (body[half:], False)]
        status, answer = 0, b""

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()  # the asker stays, and says no more
            data, more = parts.pop(0)
            return {"type": "http.request", "body": data, "more_body": more}

        async def send(message: Any) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            answer += message.get("body", b"")

        await self._app(scope, receive, send)
        lines = answer.decode().splitlines()
        return status, [json.loads(line, parse_constant=_no_number) for line in lines]


def _no_number(name: str) -> float:
    raise AssertionError(f"{name} in an answer")
