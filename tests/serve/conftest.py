"""Tiny models behind a real server on a loopback port, and a client without any framework."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from blackout.models import load
from blackout.ngram import NGram
from blackout.ngram import train as train_ngram
from blackout.serve.app import application
from blackout.serve.gate import Limits
from blackout.serve.listen import Server, bind
from blackout.serve.shelf import Shelf


class Client:
    """Asks a server; every call is a connection of its own."""

    server: Server

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self,
        path: str,
        question: Any = None,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer; a question is sent by POST."""
        if question is not None:
            body = json.dumps(question).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        self.headers = dict(answer.getheaders())
        kind = answer.headers["content-type"]
        if kind == "application/x-ndjson":
            return answer.status, [json.loads(line) for line in text.splitlines()]
        return answer.status, json.loads(text) if kind == "application/json" else text


@contextmanager
def serving(
    shelf: Shelf, limits: Limits | None = None, token: str | None = None
) -> Iterator[Client]:
    """A server in a thread of this process."""
    listening = bind("127.0.0.1", 0)
    server = Server(application(shelf, limits, token), listening)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        client = Client(listening.getsockname()[1])
        client.server = server
        yield client
    finally:
        server.stop()
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def trained(lab, tmp_path_factory) -> Any:
    """The folder of a run and the file of an n-gram."""
    folder = tmp_path_factory.mktemp("served")
    lab.train(folder / "small")
    train_ngram(lab.text("train"), folder / "three.arpa", order=3)
    return folder


@pytest.fixture(scope="session")
def shelf(trained) -> Shelf:
    network, ngram = load(trained / "small"), NGram.load(trained / "three.arpa")
    return Shelf([("small", network)], ("three", ngram), [0.3])


@pytest.fixture(scope="session")
def client(shelf) -> Iterator[Client]:
    with serving(shelf) as found:
        yield found


@pytest.fixture(scope="session")
def serve() -> Any:
    return serving
