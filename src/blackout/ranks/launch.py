"""Processes that ``torchrun`` started together, or whoever sets the same environment.

``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` say who a process is; without them, or
in a world of one, a program is alone. A rank that dies or hangs is named by the others: each of
them leaves a word in the store that all of them share, and who leaves none is missing.
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from blackout.errors import UserError
from blackout.ranks.group import Ranks

__all__ = ["DEFAULT_TIMEOUT", "Launch", "RankLost", "leave_at_once", "world_size"]

PATIENCE = 15.0
"""Seconds that ranks which lost touch wait for a word of the others."""
LINGER = 5.0
"""Seconds that rank 0, which may hold the store, stays for the others after it has spoken."""
BEAT = 1.0
"""Seconds between two signs of life of a rank that the others wait for."""
DEFAULT_TIMEOUT = 300.0


class RankLost(UserError):
    """A rank does not answer any more."""


def world_size() -> int:
    """How many processes were started together.

    >>> world_size()
    1
    """
    try:
        return max(1, int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError:
        raise UserError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, must be a number") from None


class Launch:
    """The processes that were started together, seen by one of them; they have found each other.

    ``timeout``: seconds to wait for the others.
    """

    def __init__(self, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.rank, self.size = 0, world_size()
        self.name = _name()
        """The same for all processes of a start, those included that replace others; or empty."""
        self.store: dist.Store | None = None
        self.timeout = timeout
        self._lost: set[int] = set()
        if self.size > 1:
            shared, self.rank, self.size = _rendezvous(timedelta(seconds=timeout))
            self.store = _fresh(shared, self.rank, self.size, timeout)
            self.store.set(f"host {self.rank}", platform.node())
            self.hosts = [_wait_for(self.store, f"host {rank}") for rank in range(self.size)]

    @contextmanager
    def group(
        self, device: Literal["auto", "cpu", "cuda"] = "cpu", timeout: float = DEFAULT_TIMEOUT
    ) -> Iterator[Ranks]:
        """The ranks as a group that exchanges numbers, for the time of a ``with``.

        ``device``: GPUs talk through NCCL, each rank of a machine has its own; else gloo.
        ``timeout``: seconds without an answer after which a rank is lost (:class:`RankLost`).
        """
        if self.store is None:
            yield Ranks.alone()
            return
        self.timeout = timeout
        on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
        if on_gpu:
            _take_gpu()
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=dist.PrefixStore("group", self.store),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=timeout),
        )
        try:
            yield Ranks(dist.group.WORLD)
        except RuntimeError as error:
            if not _is_from_a_collective(error):
                raise
            raise self._who_is_lost(timeout) from error
        with suppress(RuntimeError):
            dist.destroy_process_group()

    def speaks(self) -> bool:
        """Whether this rank is to tell people what ended it: one of them is enough.

        Rank 0 comes first, where it comes at all.
        """
        if self.store is None:
            return True
        if self.rank > 0:
            time.sleep(0.5)
        with suppress(RuntimeError):
            return self.store.add("spoken", 1) == 1
        return True

    def linger(self) -> None:
        """Rank 0 stays until the others have heard that it has spoken; else they would speak too.

        Where torchrun holds the store it need not.
        """
        held_elsewhere = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        if self.store is None or self.rank > 0 or held_elsewhere:
            return
        until, others = time.monotonic() + LINGER, self.size - 1 - len(self._lost)
        with suppress(RuntimeError):
            while self.store.add("spoken", 0) <= others and time.monotonic() < until:
                time.sleep(0.05)

    def first_alone(self, work: Callable[[], object]) -> None:
        """Rank 0 does something that may take hours; the others wait for it as long as it lives."""
        if self.store is None:
            work()
        elif self.rank > 0:
            self._wait_while_it_lives(self.store)
            if said := _read(self.store, "done alone"):
                raise UserError(said)
        else:
            try:
                with _beating(self.store):
                    work()
            except UserError as error:
                self.store.set("done alone", str(error))
                raise
            self.store.set("done alone", "")

    def _wait_while_it_lives(self, store: dist.Store) -> None:
        """For rank 0's word that it is done; :class:`RankLost` once it no longer beats."""
        beats, heard = -1, time.monotonic()
        while not store.check(["done alone"]):
            if (now := store.add("beats", 0)) != beats:
                beats, heard = now, time.monotonic()
            elif time.monotonic() - heard > self.timeout:
                raise self._are_lost({0}, self.timeout)
            time.sleep(0.05)

    def _who_is_lost(self, timeout: float) -> RankLost:
        """Asks all ranks for a word; names those that give none."""
        assert self.store is not None
        silent = set(range(self.size)) - {self.rank}
        with suppress(RuntimeError):
            self.store.set(f"alive {self.rank}", "yes")
            silent = self._without("alive", silent)
            self.store.set(f"has asked {self.rank}", "yes")
            if self.rank == 0:  # where the store may be: it lasts until the others have asked too
                self._without("has asked", set(range(1, self.size)) - silent)
        if not silent:
            return RankLost("the ranks lost touch with each other, though all are alive")
        return self._are_lost(silent, timeout)

    def _are_lost(self, silent: set[int], timeout: float) -> RankLost:
        self._lost = silent
        names = ", ".join(f"rank {rank} on {self.hosts[rank]}" for rank in sorted(silent))
        does = "does" if len(silent) == 1 else "do"
        return RankLost(f"{names} {does} not answer (waited up to {timeout:g} s): hung or dead")

    def _without(self, word: str, silent: set[int]) -> set[int]:
        """Those of the ranks that do not say a word in time."""
        assert self.store is not None
        until = time.monotonic() + PATIENCE
        while silent and time.monotonic() < until:
            silent = {rank for rank in silent if not self.store.check([f"{word} {rank}"])}
            time.sleep(0.1 if silent else 0)
        return silent


@contextmanager
def _beating(store: dist.Store) -> Iterator[None]:
    """The store hears meanwhile, again and again, that this process lives."""
    done = threading.Event()

    def beat() -> None:
        with suppress(RuntimeError):  # whoever held the store is gone
            while not done.wait(BEAT):
                store.add("beats", 1)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _take_gpu() -> None:
    local = int(os.environ.get("LOCAL_RANK", "0"))
    count = torch.cuda.device_count()
    if local >= count:
        raise UserError(f"local rank {local} has no GPU: this machine has {count}")
    torch.cuda.set_device(local)


def _rendezvous(limit: timedelta) -> tuple[dist.Store, int, int]:
    where = f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    try:
        return next(dist.rendezvous("env://", timeout=limit))
    except ValueError as error:
        raise UserError(f"not started as torchrun does: {error}") from None
    except dist.DistError as error:
        text = str(error)
        if "EADDRINUSE" in text or "in use" in text:
            port = os.environ.get("MASTER_PORT")
            raise UserError(
                f"port {port} is in use here; choose another: MASTER_PORT, or torchrun's "
                "--master-port"
            ) from None
        raise UserError(
            f"rank {os.environ.get('RANK')} on {platform.node()} does not reach {where}: "
            f"{text.splitlines()[0]}"
        ) from None


def _fresh(store: dist.Store, rank: int, size: int, timeout: float) -> dist.Store:
    """A part of the store that no earlier round of these processes has written to.

    torchrun keeps one store while machines come and go. Each rank says hello with a number of its
    own, rank 0 answers it with the name of this round until all have repeated that.
    """
    until = time.monotonic() + timeout
    own = secrets.token_hex(8)
    if rank > 0:
        store.set(f"hello {rank}", own)
        while time.monotonic() < until:
            answer = _read(store, f"welcome {rank}").split()
            if answer[:1] == [own]:
                store.set(f"heard {rank}", answer[1])
                return dist.PrefixStore(answer[1], store)
            time.sleep(0.02)
        raise UserError(f"rank 0 does not answer: waited {timeout:g} s for it")
    missing = set(range(1, size))
    while missing and time.monotonic() < until:
        for other in sorted(missing):
            if hello := _read(store, f"hello {other}"):
                store.set(f"welcome {other}", f"{hello} {own}")
            if _read(store, f"heard {other}") == own:
                missing.remove(other)
        time.sleep(0.02 if missing else 0)
    if missing:
        names = ", ".join(f"rank {other}" for other in sorted(missing))
        raise UserError(f"{names} did not come: waited {timeout:g} s")
    return dist.PrefixStore(own, store)


def _wait_for(store: dist.Store, key: str) -> str:
    """What another rank says as soon as it has come."""
    return store.get(key).decode()


def _read(store: dist.Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _name() -> str:
    """What tells this start from others: the id given to torchrun, or the process that it is."""
    given = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if given != "none":
        return given
    # without an id there is one torchrun a machine, which lives as long as the start
    with suppress(OSError, IndexError):
        parent = os.getppid()
        began = Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[19]
        return f"{platform.node()} {parent} {began}"
    return ""


def _is_from_a_collective(error: Exception) -> bool:
    """gloo raises plain RuntimeErrors."""
    if isinstance(error, dist.DistError):
        return True
    text = str(error).lower()
    return any(word in text for word in ("gloo", "timed out", "connection", "socket", "peer"))


def leave_at_once(status: int) -> None:
    """Ends the process without waiting for threads of a group that is broken."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
