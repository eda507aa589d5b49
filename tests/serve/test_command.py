"""``blackout serve`` from the command line: what it refuses, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import time
from urllib.parse import urlsplit

import pytest

from blackout.cli import serve
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.serve.listen import bind, is_own


def test_a_port_in_use_is_one_line(trained, capsys):
    with bind("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(trained / "small"), "--port", port]) == 1
    error = capsys.readouterr().err
    assert error == f"blackout serve: port {port} is in use; --port 0 takes one that is free\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to serve"),
        (["nowhere"], "nowhere: no such model folder"),
        ([".", "--port", "65536"], "port is 65536, must be from 0 to 65535"),
        ([".", "--weight", "2"], "weight is 2.0, must be from 0 to 1"),
        ([".", "--max-words", "0"], "max-words is 0, must be above 0"),
        ([".", "--tune", "x"], "tune: there is no mixture"),
        ([".", "--host", "192.0.2.1", "--port", "0"], "not an address of this machine"),
    ],
)
def test_what_cannot_be_served_is_one_line(arguments, sentence, capsys):
    assert main(["serve", *arguments]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(monkeypatch, trained, capsys):
    found = serve.importlib.util.find_spec
    monkeypatch.setattr(
        serve.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name)
    )
    assert main(["serve", str(trained / "small")]) == 1
    assert "pip install 'blackout-lm[serve]'" in capsys.readouterr().err


def test_other_addresses_need_a_token(monkeypatch):
    with bind("0.0.0.0", 0) as open_to_all, bind("127.0.0.1", 0) as own:
        assert not is_own(open_to_all)
        assert is_own(own)
    monkeypatch.delenv(serve.TOKEN, raising=False)
    assert len(serve.wanted_token()) >= 32
    assert serve.wanted_token() != serve.wanted_token()
    monkeypatch.setenv(serve.TOKEN, "mine")
    assert serve.wanted_token() == "mine"
    monkeypatch.setenv(serve.TOKEN, "with space")
    with pytest.raises(UserError, match="without spaces"):
        serve.wanted_token()


def test_ctrl_c_ends_it_well(trained, child, tmp_path):
    """It says its address as JSON when it can be asked, and ends with status 0."""
    said = tmp_path / "said"

    def run() -> int:
        with said.open("w") as file, contextlib.redirect_stdout(file):
            return main(["serve", str(trained / "small"), "--port", "0", "--json"])

    process = child(run)
    try:
        deadline = time.monotonic() + 30
        while not (said.exists() and said.read_bytes().endswith(b"}\n")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        address = urlsplit(json.loads(said.read_text())["address"])
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
        connection.request("GET", "/healthz")  # the socket listens before the server runs
        assert connection.getresponse().status == 200
        os.kill(process.pid, signal.SIGINT)
    except BaseException:
        process.kill()
        raise
    assert process.wait() == 0
