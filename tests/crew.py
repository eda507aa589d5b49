"""Processes that stay: a few gloo ranks that run functions of test files, many one after another.

Importing PyTorch takes seconds; a fork server does it once, and the ranks are forked from it,
before any thread was started. Nobody waits for ever: a rank that does not answer in time fails the
test, and a rank that fails takes the others of its group with it.
"""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = 60
_PRELOADED = ["torch.distributed", "torch._dynamo", "blackout.optim", "blackout.output"]


class RankError(AssertionError):
    """What a rank raised, with its name and text."""

    def __init__(self, rank: int, kind: str, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.kind, self.text = kind, text.strip().splitlines()[-1]


class Crew:
    """``size`` ranks; :meth:`run` calls a function on the first R of them, in a group of R."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self.size, self.folder, self.calls = size, tempfile.TemporaryDirectory(), 0
        pairs = [context.Pipe() for _ in range(size)]
        self.pipes = [here for here, _ in pairs]
        self.processes = [
            context.Process(target=_serve, args=(there, rank, size, self.folder.name), daemon=True)
            for rank, (_, there) in enumerate(pairs)
        ]
        for process in self.processes:
            process.start()

    def run(self, function: Callable[..., Any], ranks: int, *args: Any, **named: Any) -> list[Any]:
        """What ``function(group, *args)`` gives on each rank; the first failure is raised."""
        place = inspect.getfile(function), function.__qualname__
        self.calls += 1
        for pipe in self.pipes[:ranks]:
            pipe.send((self.calls, place, ranks, args, named))
        answers = [self._answer(rank) for rank in range(ranks)]
        failures = [(r, *a[1:]) for r, a in enumerate(answers) if a[0] == "failed"]
        if failures:  # a rank that fell with another only says that it lost it
            failures.sort(key=lambda f: "gloo" in f[2])
            raise RankError(*failures[0])
        return [value for _, value in answers]

    def _answer(self, rank: int) -> Any:
        """What the rank says to this call; an answer to one that was given up is passed over."""
        while True:
            assert self.pipes[rank].poll(SECONDS), f"rank {rank} does not answer"
            call, *answer = self.pipes[rank].recv()
            if call == self.calls:
                return answer

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
            process.join(10)
        self.folder.cleanup()


def _serve(pipe: Any, rank: int, size: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = timedelta(seconds=SECONDS // 2)
    dist.init_process_group(
        "gloo", f"file://{folder}/store", timeout=limit, rank=rank, world_size=size
    )
    groups = {n: dist.new_group(list(range(n)), timeout=limit) for n in range(1, size + 1)}
    modules: dict[str, Any] = {}
    while True:
        call, (file, name), ranks, args, named = pipe.recv()
        try:
            if file not in modules:
                modules[file] = _load(file)
            value = getattr(modules[file], name)(groups[ranks], *args, **named)
            answer = ("done", value)
        except Exception as error:
            answer = ("failed", type(error).__name__, "".join(traceback.format_exception(error)))
        pipe.send((call, *answer))


def _load(file: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"crew_{Path(file).stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
