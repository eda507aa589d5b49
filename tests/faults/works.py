"""What is interrupted: verbs that write, each from an old state to a new one.

A work lies in a folder of its own, is begun anew for each fault, done in a forked child, and looked
at by the parent: the old state or the new one, never between, and done again it is the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conftest import Lab

from blackout.cli.main import main
from blackout.errors import UserError
from blackout.text.prepared import open_prepared

Content = Any


class Work:
    """Something that is done: ``main`` with a command line, in a folder that had an old state."""

    ranks = 1
    takes_long = False
    """Whether a fault is a matter of seconds, because processes have to find each other."""

    def __init__(self, name: str, lab: Lab, folder: Path) -> None:
        self.name, self.lab, self.folder = name, lab, folder
        self.old_folder = folder.with_name(f"{folder.name}-old")
        self.new: Content = None

    def set_up(self) -> None:
        """Makes the old state, kept aside, and the new one to compare with; once."""
        raise NotImplementedError

    def begin(self) -> None:
        """Puts the old state in place."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        shutil.copytree(self.old_folder, self.folder)

    def ready(self) -> None:
        """What its processes must agree on, just before they do it."""

    def do(self, rank: int = 0) -> int:
        """Does it, here; the exit status."""
        raise NotImplementedError

    def fault(self) -> str | None:
        """What is between the old state and the new one, None if nothing is."""
        raise NotImplementedError

    def is_new(self) -> bool:
        raise NotImplementedError

    def left_over(self) -> list[str]:
        return [p.name for p in self.folder.rglob("*") if ".partial" in p.name]


class OfFiles(Work):
    """A command that writes files, each of which must be the old or the new one."""

    def __init__(
        self,
        name: str,
        lab: Lab,
        folder: Path,
        command: Callable[[Path, int], list[str]],
        written: tuple[str, ...],
    ) -> None:
        super().__init__(name, lab, folder)
        self.command, self.written = command, written
        self.states: list[dict[str, bytes]] = []

    def set_up(self) -> None:
        for number in (0, 1):
            self.folder.mkdir(parents=True)
            (self.folder / "tmp").mkdir()
            assert main(self.command(self.folder, number)) == 0
            self.states.append(self._read())
            if number == 0:
                shutil.copytree(self.folder, self.old_folder)
            shutil.rmtree(self.folder)
        assert all(self.states[0][name] != self.states[1][name] for name in self.written)

    def do(self, rank: int = 0) -> int:
        return main(self.command(self.folder, 1))

    def fault(self) -> str | None:
        for name, content in self._read().items():
            if content not in (self.states[0][name], self.states[1][name]):
                return f"{name} is neither the old nor the new one"
        odd = set(os.listdir(self.folder)) - {*self.written, "tmp"}
        odd = {name for name in odd if ".partial" not in name}
        return f"{odd} beside" if odd else None

    def is_new(self) -> bool:
        return self._read() == self.states[1]

    def left_over(self) -> list[str]:
        return super().left_over() + os.listdir(self.folder / "tmp")

    def _read(self) -> dict[str, bytes]:
        return {name: (self.folder / name).read_bytes() for name in self.written}


class Preparing(Work):
    """A folder of shards, made anew with other settings."""

    def set_up(self) -> None:
        self.contents = []
        for number in (0, 1):
            assert main(self._command(number)) == 0
            self.contents.append(self._content())
            if number == 0:
                shutil.copytree(self.folder, self.old_folder, copy_function=shutil.copy2)
        assert self.contents[0] != self.contents[1]

    def _command(self, number: int) -> list[str]:
        texts = [f"--{part}={self.lab.text(part)}" for part in ("train", "valid")]
        least = (1, 3)[number]
        return ["prepare", *texts, f"--out={self.folder}", f"--min-count={least}", "--threads=1"]

    def _content(self) -> Content:
        prepared = open_prepared(self.folder)
        shards = [prepared.shard(part).tokens.tolist() for part in ("train", "valid")]
        return prepared.vocab.words, shards

    def do(self, rank: int = 0) -> int:
        return main(self._command(1))

    def fault(self) -> str | None:
        try:
            return None if self._content() in self.contents else "another content"
        except UserError as error:  # not half used: refused, and made again by whoever has the text
            return None if "made with another vocabulary" in str(error) else str(error)

    def is_new(self) -> bool:
        return bool(self._content() == self.contents[1])


class Training(Work):
    """A run of one epoch goes on to its second; or begins, where there is no old state."""

    def __init__(self, name: str, lab: Lab, folder: Path, *, begun: bool, **settings: Any) -> None:
        super().__init__(name, lab, folder)
        self.begun, self.settings = begun, {"epochs": 2, "alpha": 0.5, **settings}

    def set_up(self) -> None:
        straight = self.folder.with_name(f"{self.folder.name}-straight")
        self._train(straight, self.settings["epochs"], resume=False)
        self.new = self._state(straight)
        if self.begun:
            self._train(self.old_folder, 1, resume=False)
        else:
            self.old_folder.mkdir()

    def _train(self, out: Path, epochs: int, *, resume: bool) -> None:
        assert self._command(out, epochs, resume) == 0

    def _command(self, out: Path, epochs: int, resume: bool) -> int:
        if resume:
            return main(["train", "--out", str(out), "--resume", f"--epochs={epochs}"])
        data = {"train": None, "valid": None, "test": None, "prepared": self.lab.data.folder}
        return main(self.lab.options(out, **(self.settings | data | {"epochs": epochs})))

    def _state(self, out: Path) -> Content:
        return self.lab.final(out)

    def do(self, rank: int = 0) -> int:
        resume = (self.folder / "run.toml").exists()
        return self._command(self.folder, self.settings["epochs"], resume)

    def fault(self) -> str | None:
        """A checkpoint that stands there is whole, and the best model can be used."""
        import blackout
        from blackout.files.tensors import read_metadata

        checkpoints = sorted(self.folder.glob("checkpoints/step-*.safetensors"))
        try:
            for path in checkpoints:
                read_metadata(path)
            if (self.folder / "model.safetensors").exists():
                blackout.load(self.folder)
        except UserError as error:
            return str(error)
        if self.begun and not checkpoints:
            return "the checkpoint is gone"
        return "more than two checkpoints" if len(checkpoints) > 2 else None

    def is_new(self) -> bool:
        return not self.lab.differing(self._state(self.folder), self.new)

    def left_over(self) -> list[str]:
        locks = [".lock"] if (self.folder / ".lock").exists() else []
        return super().left_over() + locks


class TrainingOverRanks(Training):
    """The same by two processes, each of which saves the rows that it owns."""

    ranks = 2
    takes_long = True

    def set_up(self) -> None:
        """By two processes too: one comes to other last digits."""
        import blackout.ranks.launch  # once, for all that are forked
        import blackout.train  # noqa: F401

        assert self.lab.data.shards, "prepared here, where nobody counts operations"
        super().set_up()

    def _train(self, out: Path, epochs: int, *, resume: bool) -> None:
        self.ready()
        processes = []
        for rank in range(self.ranks):
            process = os.fork()
            if not process:
                os._exit(self._on_rank(rank, out, epochs, resume))
            processes.append(process)
        assert [os.waitpid(process, 0)[1] for process in processes] == [0] * self.ranks

    def ready(self) -> None:
        """A port to meet at; whether there is a run to go on with, which one of them may begin."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.resume = (self.folder / "run.toml").exists()

    def do(self, rank: int = 0) -> int:
        return self._on_rank(rank, self.folder, self.settings["epochs"], self.resume)

    def _on_rank(self, rank: int, out: Path, epochs: int, resume: bool) -> int:
        """As torchrun would start it."""
        os.environ |= {
            "RANK": str(rank), "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
        }  # fmt: skip
        return self._command(out, epochs, resume)

    def _state(self, out: Path) -> Content:
        from tests.train.over_ranks import last, whole

        best = whole(out / "model.safetensors")
        return last(out) | {f"best.{name}": tensor for name, tensor in best.items()}

    def is_new(self) -> bool:
        """Without parts that no file names."""
        return super().is_new() and not self._strays()

    def _strays(self) -> set[Path]:
        from blackout.files.loading import PartIndex

        files = [p for p in self.folder.rglob("*.safetensors") if not p.name.startswith("part-of-")]
        named = set()
        for path in files:
            index = PartIndex.of(path)
            named |= {path.with_name(name) for name, _, _ in index.files} if index else set()
        return set(self.folder.rglob("part-of-*")) - named


class Tuning(Work):
    """A study of two runs: what they came to, and what was best of it."""

    def __init__(self, name: str, lab: Lab, folder: Path, *, known: bool) -> None:
        super().__init__(name, lab, folder)
        self.known = self.takes_long = known

    def set_up(self) -> None:
        assert self._in_here(self.folder) == 0
        self.new = self._content()
        if self.known:  # what is left are the study's own files
            for name in ("best.toml", "trials.jsonl"):
                (self.folder / name).unlink()
            shutil.copytree(self.folder, self.old_folder, copy_function=shutil.copy2)
        else:
            self.old_folder.mkdir()

    def _in_here(self, folder: Path) -> int:
        """The command, whose runs are done by this process instead of children of it."""
        from blackout.trials import crew
        from blackout.trials.worker import do_trial

        class Here:
            """Stands for a child process."""

            def __init__(self, messages: Any, threads: int) -> None:
                self.messages, self.job = messages, None

            def do(self, job: Any, spec: dict[str, Any]) -> None:
                from blackout.trials.trial import outcome_to_dict

                self.job = job
                try:
                    told = {"outcome": outcome_to_dict(do_trial(spec, lambda message: None))}
                except UserError as error:
                    told = {"error": str(error)}
                self.messages.put((self, json.loads(json.dumps(told))))

            def stop(self) -> None: ...

            def end(self) -> str:
                return ""

        crew.Worker = Here  # type: ignore[assignment, misc]
        small = ["--hidden=4", "--samples=3", "--batch=8", "--bptt=5", "--epochs=1", "--threads=1"]
        texts = [f"--{part}={self.lab.text(part)}" for part in ("train", "valid")]
        grid = ["--grid", "alpha=0,0.5", "--workers=1", "--device=cpu", "--preset=paper"]
        return main(["tune", *texts, f"--out={folder}", *small, *grid])

    def _content(self) -> Content:
        found = {n: (self.folder / n).read_text() for n in ("best.toml", "trials.jsonl")}
        results = sorted((self.folder / "trials" / "results").iterdir())
        outcomes = [json.loads(path.read_text())["outcome"] for path in results]
        for outcome in outcomes:  # times differ
            outcome["words_per_second"] = 0
            for epoch in outcome["curve"]:
                epoch["seconds"] = 0
        return found, outcomes

    def do(self, rank: int = 0) -> int:
        return self._in_here(self.folder)

    def fault(self) -> str | None:
        from blackout.trials.trial import read_result

        results = self.folder / "trials" / "results"
        for path in results.iterdir() if results.exists() else ():
            if ".partial" not in path.name:
                read_result(path)
        for name, content in self.new[0].items():
            path = self.folder / name
            if path.exists() and path.read_text() != content:
                return f"{name} is not whole"
        return None

    def is_new(self) -> bool:
        return bool(self._content() == self.new)


def works(folder: Path, quick: bool) -> Iterator[Work]:
    """All of them, over one small text; ``quick``: without a page of the mixture."""
    texts = folder / "texts"
    texts.mkdir()
    lab = Lab(texts)
    for number in (0, 1):
        source = texts / f"ngram-{number}.txt"
        source.write_text(lab.text("train").read_text() + "a cat\n" * (5 * number))
        out = texts / f"ngram-{number}.arpa"
        command = ["ngram", "train", "--order=2", f"--train={source}", f"--out={out}"]
        assert main(command) == 0
    lab.train(texts / "network", epochs=1)

    def estimate(name: str) -> Callable[[Path, int], list[str]]:
        def command(out: Path, number: int) -> list[str]:
            # so little memory that it sorts on the disk
            aside = [f"--temp-dir={out / 'tmp'}", "--memory=4096", "--threads=1", "--order=2"]
            source = texts / f"ngram-{number}.txt"
            return ["ngram", "train", f"--train={source}", f"--out={out / name}", *aside]

        return command

    def mix(out: Path, number: int) -> list[str]:
        models = [str(texts / "network"), str(texts / f"ngram-{number}.arpa")]
        parts = [f"--tune={lab.text('valid')}", f"--test={lab.text('test')}"]
        written = [f"--{option}={out / name}" for option, name in mixed]
        return ["mix", *models, *parts, *written, "--threads=1"]

    mixed = [("probs", "probs"), ("report", "mix.html")][: 1 if quick else 2]
    for form in ("arpa", "bin", "arpa.gz"):
        name = f"model.{form}"
        yield OfFiles(f"estimating {form}", lab, folder / f"to-{form}", estimate(name), (name,))
    yield OfFiles("mixing", lab, folder / "mixed", mix, tuple(name for _, name in mixed))
    yield Preparing("preparing", lab, folder / "prepared")
    small = {"batch": 16, "bptt": 12}
    yield Training("saving, from the start", lab, folder / "run", begun=False, **small)
    yield Training("saving, going on", lab, folder / "going-on", begun=True, **small)
    yield Tuning("tuning", lab, folder / "study", known=False)
    yield Tuning("tuning, its runs known", lab, folder / "known-study", known=True)
    ranks = small | {"sampling": "strata"}
    for begun in (False, True):
        name = f"saving over ranks, {'going on' if begun else 'from the start'}"
        yield TrainingOverRanks(name, lab, folder / f"ranks-{begun}", begun=begun, **ranks)
