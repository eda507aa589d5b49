"""A tiny text and tiny runs over it, for every test that needs a model that has been trained."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Threads that wait sleep: spinning, they would take the core from the thread that they wait for
# wherever the machine has other work. OpenMP reads this once, when PyTorch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

# Where there is no GPU, Triton's interpreter runs the kernels. It must be told before anything
# imports Triton, and frameworks that some tests import do.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Programs with needs of their own: `make fuzz` and `make test-page` run them.
collect_ignore = ["fuzz/fuzz.py", "serve/in_a_browser.py"]

WORDS = "the a cat dog bird house tree sees has likes big small old red and then".split()  # noqa: SIM905


def sentences(count: int, seed: int) -> str:
    """Random sentences of 1 to 9 words, frequent words more often."""
    rng = random.Random(seed)
    lines = (
        rng.choices(WORDS, range(len(WORDS), 0, -1), k=rng.randint(1, 9)) for _ in range(count)
    )
    return "".join(" ".join(line) + "\n" for line in lines)


class Lab:
    """Three texts in a folder, and ways to train on them, here or in a process that may die."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for seed, (name, count) in enumerate({"train": 60, "valid": 12, "test": 12}.items()):
            (folder / f"{name}.txt").write_text(sentences(count, seed))
        self._data: Any = None

    def text(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    @property
    def data(self) -> Any:
        """The texts, prepared."""
        if self._data is None:
            from blackout.text.prepared import prepare

            files = {name: self.text(name) for name in ("valid", "test")}
            self._data = prepare(self.text("train"), self.folder / "data", **files, threads=1)
        return self._data

    def config(self, **settings: Any) -> Any:
        """A small config; settings by their plain names, whatever their table.

        The preset is the one whose runs are their longer versions' beginnings.
        """
        from blackout.config import Config

        small = {
            "hidden": 8, "samples": 5, "batch": 4, "bptt": 5, "epochs": 2, "lr": 0.02,
            "threads": 1, "device": "cpu",
        }  # fmt: skip
        small |= settings
        tables: dict[str, dict[str, Any]] = {}
        for table in dataclasses.fields(Config):
            names = {f.name for f in dataclasses.fields(table.default_factory())}  # type: ignore
            tables[table.name] = {name: small.pop(name) for name in names & set(small)}
        assert not small, f"no such settings: {small}"
        return Config.from_dict({"preset": "paper", **tables})

    def train(self, out: Path, *, resume: bool = False, progress: Any = None, **settings: Any):
        from blackout.train import train

        config = self.config(**settings)
        return train(config, self.data, out, resume=resume, progress=progress)

    def options(self, out: Path, **settings: Any) -> list[str]:
        """A command line that trains on these texts."""
        small = {
            "train": self.text("train"), "valid": self.text("valid"), "test": self.text("test"),
            "out": out, "hidden": 8, "samples": 5, "batch": 4, "bptt": 5, "epochs": 1,
            "threads": 1, "device": "cpu", "preset": "paper",
        }  # fmt: skip
        small |= settings
        pairs = ((f"--{k.replace('_', '-')}", str(v)) for k, v in small.items() if v is not None)
        return ["train", *(word for pair in pairs for word in pair)]

    @staticmethod
    def tensors(path: Path) -> dict[str, Any]:
        """Everything in a tensor file."""
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    @classmethod
    def final(cls, out: Path) -> dict[str, Any]:
        """All tensors of a run: those of its only checkpoint, and its best weights."""
        (checkpoint,) = (out / "checkpoints").glob("step-*.safetensors")
        best = cls.tensors(out / "model.safetensors")
        return cls.tensors(checkpoint) | {f"best.{name}": value for name, value in best.items()}

    @staticmethod
    def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
        """Names whose tensors are not the same bit for bit."""
        same = [
            name
            for name in a.keys() & b.keys()
            if a[name].dtype == b[name].dtype and torch.equal(a[name], b[name])
        ]
        return sorted((a.keys() | b.keys()) - set(same))

    @staticmethod
    def leftovers(out: Path) -> list[Path]:
        return [path for path in out.rglob("*") if path.name.endswith(".partial")]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Threads cost more than they bring where everything is this small.

    A test that is about threads asks for its own number.
    """
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny runs go without report.html: it takes longer than they do and has its own tests."""
    if "lab" in request.fixturenames:
        monkeypatch.setattr("blackout.pages.report.write_report", lambda out: None)


class Child:
    """A forked process that runs a function: it needs no second import of PyTorch.

    One thread only, since threads do not survive a fork.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        torch.set_num_threads(1)
        self.pid = os.fork()
        if self.pid == 0:
            status = 99
            try:
                # PyTorch replaces the lost pool of threads at its first use after a fork; two
                # threads of the child that do so at a time find none ("Invalid thread pool").
                torch.set_num_threads(1)
                result = function()
                status = result if isinstance(result, int) else 0
            except BaseException as error:
                print(f"child: {type(error).__name__}: {error}", flush=True)
            finally:
                os._exit(status)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """The exit status, or minus the signal it died of."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture(scope="session")
def child() -> type[Child]:
    return Child


@pytest.fixture(scope="session")
def crew() -> Any:
    """Four ranks of gloo, started when first asked for."""
    from tests.crew import Crew

    four = Crew(4)
    yield four
    four.close()
