"""kill -9 at every write, sync, rename and delete of a run, and at any moment of it.

After each kill the run goes on from its newest complete checkpoint, and what it comes to is the
same, bit for bit, as if nothing had happened.
"""

import builtins
import io
import itertools
import json
import os
import random
import shutil
import signal
import time

import pytest

SMALL = {"epochs": 2, "batch": 16, "bptt": 12}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesAt:
    """Counts the operations of this process that change a disk; does not survive the n-th.

    The n-th write reaches the disk by half; the n-th sync, rename or delete is not begun.
    """

    def __init__(self, n: int) -> None:
        self.left = n
        plain_open = io.open

        def watched_open(*arguments, **options):
            file = plain_open(*arguments, **options)
            if file.writable():
                self.watch_writes(file)
            return file

        builtins.open = io.open = watched_open
        for name in ("fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, self.counted(getattr(os, name)))

    def tick(self) -> bool:
        self.left -= 1
        return self.left == 0

    def counted(self, function):
        def call(*arguments, **options):
            if self.tick():
                die()
            return function(*arguments, **options)

        return call

    def watch_writes(self, file) -> None:
        write, flush = file.write, file.flush

        def half_at_last(data):
            if self.tick():
                write(data[: len(data) // 2])
                flush()
                die()
            return write(data)

        file.write = half_at_last


def events(out):
    """What metrics.jsonl says, but for times."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in e.items() if not k.endswith(("seconds", "second"))} for e in lines]


@pytest.fixture(scope="module")
def straight(lab):
    out = lab.folder / "straight"
    lab.train(out, **SMALL)
    return out


def goes_on_as_if_nothing_had_happened(lab, out, straight, **settings) -> None:
    # A run that died before its settings were written down has not begun: it is begun again.
    lab.train(out, resume=(out / "run.toml").exists(), **settings)
    assert lab.differing(lab.final(out), lab.final(straight)) == []
    assert events(out) == events(straight)
    assert lab.leftovers(out) == []


def test_at_every_operation_on_the_disk(lab, child, straight, tmp_path):
    died = 0
    for n in itertools.count(1):
        out = tmp_path / str(n)

        def run(out=out, n=n) -> None:
            DiesAt(n)
            lab.train(out, **SMALL)

        status = child(run).wait()
        assert status in (0, -signal.SIGKILL)
        if status == 0:
            break
        died += 1
        whole = list(out.glob("checkpoints/step-*.safetensors"))
        assert len(whole) <= 2, "older checkpoints are deleted once the new one is there"
        goes_on_as_if_nothing_had_happened(lab, out, straight, **SMALL)
    # Two best models and two checkpoints, a dozen operations each at the least.
    assert died > 50
    assert lab.differing(lab.final(out), lab.final(straight)) == []


def test_again_and_again(lab, child, straight, tmp_path):
    """Dies at a later operation each time it goes on: it still ends, and nothing piles up."""
    out = tmp_path / "out"
    for n in itertools.count(1):

        def run(n=n) -> None:
            DiesAt(n)
            lab.train(out, resume=(out / "run.toml").exists(), **SMALL)

        if child(run).wait() == 0:
            break
        # One for each file that can be written, at most.
        assert len(lab.leftovers(out)) <= 5
    goes_on_as_if_nothing_had_happened(lab, out, straight, **SMALL)


def test_the_older_checkpoint_stays_until_the_new_one_is_there(lab, tmp_path, monkeypatch):
    """At each delete of a checkpoint, a newer whole one is in the folder."""
    from blackout.files.tensors import read_metadata

    out, plain = tmp_path / "out", os.unlink
    deleted = []

    def watched(path, *arguments, **options):
        name = os.path.basename(path)
        if name.startswith("step-"):
            newest = max(out.glob("checkpoints/step-*.safetensors"))
            assert newest.name > name
            read_metadata(newest)
            deleted.append(name)
        return plain(path, *arguments, **options)

    monkeypatch.setattr(os, "unlink", watched)
    lab.train(out, **(SMALL | {"checkpoint_minutes": 1e-9}))
    assert len(deleted) == 5
    assert len(list(out.glob("checkpoints/*"))) == 1


@pytest.mark.parametrize("seed", range(4))
def test_at_random_moments(lab, child, tmp_path, seed):
    """Checkpoints after every block, kills at any time: mid-block, mid-save, mid-evaluation."""
    settings = {"epochs": 4, "checkpoint_minutes": 1e-9, "cell": "lstm", "dropout": 0.2}
    straight, out = tmp_path / "straight", tmp_path / "out"
    started = time.perf_counter()
    assert child(lambda: lab.train(straight, **settings)).wait() == 0
    longest = 0.4 * (time.perf_counter() - started)
    rng = random.Random(seed)
    kills = 0
    while kills < 4:
        resume = (out / "run.toml").exists()
        running = child(lambda resume=resume: lab.train(out, resume=resume, **settings))
        time.sleep(rng.uniform(0, longest))
        running.kill()
        if running.wait() == 0:  # it was faster: once more, with less time
            shutil.rmtree(out)
            longest, kills = longest / 2, 0
        else:
            kills += 1
    goes_on_as_if_nothing_had_happened(lab, out, straight, **settings)
