"""Processes that were started together: they find each other, and name the one that is missing."""

import os
import signal
import socket
import time

import pytest
from torch.distributed import PrefixStore, TCPStore

from blackout.cli.main import main
from blackout.cli.train import find_data
from blackout.config import Config
from blackout.errors import UserError
from blackout.ranks import launch
from blackout.ranks.together import on_first, texts, together


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def started(child, size, port, work, folder):
    """``size`` forked ranks that do ``work(launch)``; what each said."""

    def rank(number):
        def begin():
            os.environ.update(
                RANK=str(number), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )  # fmt: skip
            try:
                said = work(launch.Launch(timeout=20))
            except UserError as error:
                said = str(error)
            (folder / str(number)).write_text(said)
            os._exit(0)

        return begin

    children = [child(rank(number)) for number in range(size)]
    yield children
    for one in children:
        one.wait()
    yield [(folder / str(n)).read_text() if (folder / str(n)).exists() else "" for n in range(size)]


def test_ranks_do_together_what_one_of_them_cannot(child, port, tmp_path):
    def work(found):
        with found.group(timeout=20) as ranks:
            alone = []
            found.first_alone(lambda: alone.append(ranks.rank))
            heard = [alone, texts(ranks, "é" * ranks.rank), on_first(ranks, lambda: "first")]

            def fail():
                if ranks.rank == 1:
                    raise UserError("no disk")

            try:
                together(ranks, fail)
            except UserError as error:
                heard.append(str(error))
            return repr(heard)

    *_, said = started(child, 2, port, work, tmp_path)
    assert said[0] == repr([[0], ["", "é"], "first", "rank 1: no disk"])
    assert said[1] == repr([[], ["", "é"], "first", "no disk"])


def test_a_rank_that_hangs_is_named_within_the_limit(child, port, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PATIENCE", 1.0)

    def work(found):
        with found.group(timeout=2) as ranks:
            texts(ranks, "hello")
            if ranks.rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            texts(ranks, "are you there?")
        return "nothing happened"

    running = started(child, 3, port, work, tmp_path)
    children = next(running)
    began = time.monotonic()
    while not ((tmp_path / "0").exists() and (tmp_path / "2").exists()):
        assert time.monotonic() - began < 32, "the limit and 30 s"
        time.sleep(0.1)
    children[1].kill()
    said = next(running)
    expected = f"rank 1 on {os.uname().nodename} does not answer (waited up to 2 s): hung or dead"
    assert said == [expected, "", expected]


def test_a_first_rank_that_hangs_while_the_others_wait_is_named(child, port, tmp_path, monkeypatch):
    """The store is somebody else's, as torchrun's is, and work may take longer than the limit."""
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(launch, "BEAT", 0.2)

    def work(found):
        found.timeout = 2
        found.first_alone(lambda: time.sleep(4))
        found.store = PrefixStore("again", found.store)
        found.first_alone(lambda: os.kill(os.getpid(), signal.SIGSTOP))
        return "nothing happened"

    running = started(child, 2, port, work, tmp_path)
    children = next(running)
    began = time.monotonic()
    while not (tmp_path / "1").exists():
        assert time.monotonic() - began < 36, "the work, the limit and 30 s"
        time.sleep(0.1)
    children[0].kill()
    expected = f"rank 0 on {os.uname().nodename} does not answer (waited up to 2 s): hung or dead"
    assert next(running) == ["", expected]
    assert store.check(["nothing"]) is False


def test_a_port_that_is_in_use(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1])
        for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MASTER_PORT", number)
        assert main(["generate", "somewhere"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"blackout generate: port {number} is in use here")
    assert error.count("\n") == 1
    assert main(["tune", "--help"]) == 1
    assert "tune: runs in one process" in capsys.readouterr().err


def test_a_folder_that_the_ranks_do_not_share_is_named(tmp_path):
    files = {"train": str(tmp_path / "train"), "valid": str(tmp_path / "valid")}
    config = Config.from_dict({"data": files})
    with pytest.raises(UserError, match="not there, though rank 0 has made it: --out must be"):
        find_data(config, tmp_path / "out" / "data", prepared=True)
