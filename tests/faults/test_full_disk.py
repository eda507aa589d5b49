"""A full disk: one clear line, and what was saved before stays as it was."""

import builtins
import errno
import io
import resource
import shutil
from types import SimpleNamespace

import pytest

from blackout.cli.main import main
from blackout.errors import UserError


@pytest.fixture
def run(lab, tmp_path):
    """A run of one epoch, what is in it, and what two epochs come to."""
    out, straight = tmp_path / "out", tmp_path / "straight"
    lab.train(out, epochs=1)
    lab.train(straight, epochs=2)
    return SimpleNamespace(out=out, before=lab.final(out), goal=lab.final(straight))


def is_intact(lab, run) -> None:
    assert lab.differing(run.before, lab.final(run.out)) == []
    assert lab.leftovers(run.out) == []


def goes_on(lab, run) -> None:
    lab.train(run.out, resume=True, epochs=2)
    assert lab.differing(run.goal, lab.final(run.out)) == []


def test_too_little_space_is_seen_before_anything_is_written(lab, run, monkeypatch):
    usage = SimpleNamespace(total=10**12, used=10**12 - 1000, free=1000)
    opened, plain = [], builtins.open

    def watched(path, mode="r", *arguments, **options):
        if set(mode) & set("wax+") and str(path).startswith(str(run.out)):
            opened.append(str(path))
        return plain(path, mode, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        patch.setattr(builtins, "open", watched)
        with pytest.raises(UserError, match=r"\.safetensors: needs .* the disk has 0 MB free"):
            lab.train(run.out, resume=True, epochs=2)
    assert opened == []
    is_intact(lab, run)
    goes_on(lab, run)


class FullAfter:
    """Files under a folder take so many bytes in all, then the disk is full."""

    def __init__(self, patch, folder, room, pattern=""):
        self.room = room
        plain = io.open

        def full_open(path, mode="r", *arguments, **options):
            file = plain(path, mode, *arguments, **options)
            if (
                set(mode) & set("wax+")
                and str(path).startswith(str(folder))
                and pattern in str(path)
            ):
                self.limit(file)
            return file

        patch.setattr(builtins, "open", full_open)
        patch.setattr(io, "open", full_open)

    def limit(self, file):
        write = file.write

        def limited(data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(data)

        file.write = limited


@pytest.mark.parametrize("room", [0, 1, 100, 1000, 2500, 5000, 7000, 10000])
def test_the_disk_fills_up_in_the_middle(lab, run, monkeypatch, room):
    with monkeypatch.context() as patch:
        FullAfter(patch, run.out, room)
        with pytest.raises(UserError, match=rf"^{run.out}\S*: cannot be written: No space left"):
            lab.train(run.out, resume=True, epochs=2)
    # The best model may be the second epoch's already: the checkpoint is what counts.
    best = {name: t for name, t in lab.final(run.out).items() if name.startswith("best.")}
    run.before |= best
    is_intact(lab, run)
    goes_on(lab, run)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "vocab.txt", "config.json", "run.toml", "model.s"]
)
def test_each_file_of_a_new_run(lab, tmp_path, monkeypatch, name):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        FullAfter(patch, out, 0, pattern=name)
        with pytest.raises(UserError, match=rf"^{out / name}\S*: cannot be written: No space left"):
            lab.train(out)
    assert lab.leftovers(out) == []
    lab.train(out)  # nothing is in the way of a second try


def test_a_write_that_the_system_refuses(lab, run, child, capfd):
    """No patch: the kernel refuses to let a file grow beyond a limit."""
    size = max(path.stat().st_size for path in run.out.glob("checkpoints/*"))

    def limited() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        return main(["train", "--out", str(run.out), "--resume", "--epochs", "2"])

    # The run of the fixture was not started by the command; write down where its text is.
    toml = run.out / "run.toml"
    texts = "".join(f'{part} = "{lab.text(part)}"\n' for part in ("train", "valid", "test"))
    toml.write_text(toml.read_text().replace("[data]\n", f"[data]\n{texts}"))
    parts = (f"--{part}={lab.text(part)}" for part in ("train", "valid", "test"))
    assert main(["prepare", *parts, f"--out={run.out / 'data'}"]) == 0
    capfd.readouterr()
    assert child(limited).wait() == 1
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"blackout train: {run.out}")
    assert said[0].endswith(": cannot be written: File too large")
    run.before |= {n: t for n, t in lab.final(run.out).items() if n.startswith("best.")}
    is_intact(lab, run)
    goes_on(lab, run)
