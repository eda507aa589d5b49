"""How much memory a run will need and how much there is, before any of it is asked for.

A system gives out memory that it does not have and kills the process that touches it: hours into
a run, or, worse, another process. What decides the size are the word tables and their second
moments, V rows each, and the arrays of a block; all of them follow from the settings.

>>> from blackout.config import Config
>>> need = training_need(Config.from_dict({"model": {"hidden": 1024}}), vocab_size=1_000_000)
>>> need.parts["word tables"] == 2 * 1_000_000 * 1024 * 4
True
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blackout import losses
from blackout.config import Config
from blackout.errors import UserError
from blackout.work import body_weights, output_width

__all__ = [
    "Need",
    "free_memory",
    "require",
    "scoring_need",
    "shortage",
    "total_memory",
    "training_need",
]

_STORAGE = {"fp32": 4, "bf16": 2}
_WORD = 200  # bytes of a word, its count and its place in the vocabulary's index
_PROPOSAL = 40  # bytes of a word in the tables that samples are drawn from
_ASKED = re.compile(r"tried to allocate (\d+) bytes")  # PyTorch's words
_SCORED = 1 << 13  # words scored together (blackout.score)


@dataclass(frozen=True)
class Need:
    """What something needs, by what it is for, in bytes; and settings that make it smaller."""

    what: str
    parts: dict[str, int]
    smaller: tuple[str, ...]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def training_need(config: Config, vocab_size: int, ranks: int = 1) -> Need:
    """What training takes: a rough figure from the sizes, below the truth rather than above.

    Of each of several ranks: its rows of the tables, its words of a block.
    """
    model, optim = config.model, config.optim
    weights = _weights(config, vocab_size)
    rows = vocab_size * 4 * 2  # the step of each row's last update
    full = _table_numbers(config, vocab_size) * 4
    first = full if optim.optimizer == "adam" else 0
    moments = full if optim.second_moment == "full" else 2 * vocab_size * 4
    parts = {
        **weights,
        "word tables": weights["word tables"] // ranks,
        "moments": (first + moments + rows) // ranks,
        # with its gradient and its moments
        "network": (4 if first else 3) * weights["network"],
        "vocabulary": vocab_size * (_WORD + _PROPOSAL),
        "a block": _block(config, vocab_size) // ranks,
    }
    if "features" in weights:  # moments, clocks, and where their gradients are added up
        parts["features"] *= 5 if first else 4
    total = sum(parts.values())
    smaller = []
    features = parts.get("features", 0)
    if features > 0.9 * total:  # nothing else is worth the name
        return Need("this run", parts, ("a smaller --maxent-bits",))
    if features > total // 4:
        smaller.append("a smaller --maxent-bits")
    if model.storage == "fp32":
        left = total - parts["word tables"] // 2
        smaller.append(f"--storage bf16 (then {_gigabytes(left)})")
    if optim.second_moment == "full":
        left = total - (moments - 2 * vocab_size * 4)
        smaller.append(f"--second-moment row (then {_gigabytes(left)})")
    smaller += ["a smaller --hidden", "a smaller --vocab-size", "more machines, with torchrun"]
    if parts["a block"] > parts["word tables"]:
        smaller += ["a smaller --batch", "a smaller --bptt"]
    return Need("this run", parts, tuple(smaller))


def scoring_need(config: Config, vocab_size: int, what: str = "the model", ranks: int = 1) -> Need:
    """What a trained model takes to score text, on each of several ranks."""
    weights = _weights(config, vocab_size)
    parts = {
        **weights,
        "word tables": weights["word tables"] // ranks,
        "vocabulary": vocab_size * _WORD,
        "a batch of words": _SCORED * config.model.hidden * 4 * (config.model.layers + 2),
    }
    return Need(what, parts, ("a machine with more",))


def weights_bytes(config: Config, vocab_size: int) -> int:
    """What the weights of a model take, on disk as in memory."""
    return sum(_weights(config, vocab_size).values())


def require(need: Need, free: int | None, where: str = "there are") -> None:
    """Refuses what does not fit into ``free`` bytes, with what would help; None is not known."""
    if free is None or need.total <= free:
        return
    largest = sorted(need.parts.items(), key=lambda part: -part[1])[:3]
    shown = ", ".join(f"{name} {_gigabytes(size)}" for name, size in largest)
    raise UserError(
        f"{need.what} needs about {_gigabytes(need.total)} of memory ({shown}), "
        f"{where} {_gigabytes(free)} free; what helps: {', '.join(need.smaller)}"
    )


def shortage(error: BaseException) -> str | None:
    """What to say of an error that means memory could not be had; None of any other.

    >>> shortage(MemoryError())
    'not enough memory'
    >>> shortage(RuntimeError("DefaultCPUAllocator: you tried to allocate 8000000 bytes. Error 12"))
    'not enough memory: 8.0 MB could not be had'
    >>> shortage(ValueError("no number"))
    """
    text = str(error)
    refused = _ASKED.search(text)
    if refused is not None:
        return f"not enough memory: {_gigabytes(int(refused[1]))} could not be had"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return "not enough memory"
    if isinstance(error, RuntimeError) and "out of memory" in text:  # a GPU's
        return f"not enough memory: {text}"
    return None


def free_memory() -> int | None:
    """Bytes that may still be asked for; None where the system does not tell."""
    known = [value for value in (_meminfo("MemAvailable"), *_group_room()) if value is not None]
    return min(known, default=None)


def total_memory() -> int | None:
    """Bytes of memory that this process may have at all; None where the system does not tell."""
    known = [value for value in (_meminfo("MemTotal"), *_group_limits()) if value is not None]
    return min(known, default=None)


def _weights(config: Config, vocab_size: int) -> dict[str, int]:
    model, numbers = config.model, _table_numbers(config, vocab_size)
    bias = vocab_size if model.bias else 0
    network = 4 * (body_weights(config) + bias)
    found = {"word tables": numbers * _STORAGE[model.storage], "network": network}
    return found | {"features": 4 << config.loss.maxent_bits} if config.loss.maxent else found


def _table_numbers(config: Config, vocab_size: int) -> int:
    """Numbers in the word tables: two, or one where they are tied."""
    return vocab_size * (config.model.hidden + (0 if config.model.tie else output_width(config)))


def _block(config: Config, vocab_size: int) -> int:
    """Hidden states, logits, sampled rows and gradients of B·T words, all in float32."""
    model, loss, run = config.model, config.loss, config.run
    words, width = run.batch * run.bptt, output_width(config)
    states = words * (4 * model.layers + 4) * model.hidden
    kind = losses.find(loss.loss)
    rows = round(kind.trained_rows(loss, vocab_size))
    if "sharing" not in kind.options or rows != loss.samples:
        gradient = vocab_size * width if rows >= vocab_size else 0  # of every row
        return 4 * (states + 3 * words * rows + gradient)
    sets = {"step": run.bptt, "block": 1, "word": words}[loss.sharing]
    rows = sets * loss.samples + words
    return 4 * (states + words * loss.samples + 2 * rows * width)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _meminfo(name: str) -> int | None:
    """A line of /proc/meminfo, in bytes."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _group_room(root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """What each control group above this process has left of its limit."""
    for folder, limit_file, used_file in _groups(root):
        limit, used = _number(folder / limit_file), _number(folder / used_file)
        if limit is not None and used is not None:
            yield max(0, limit - used + _cache(folder))


def _group_limits(root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    for folder, limit_file, _ in _groups(root):
        if (limit := _number(folder / limit_file)) is not None:
            yield limit


def _groups(root: Path) -> Iterator[tuple[Path, str, str]]:
    """The memory groups of this process up to the root, of version 2 or 1, with their files.

    Inside a container the paths of /proc/self/cgroup may be those outside of it: the folder that
    is there is then the root itself.
    """
    for line in _own_groups():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = top / path.lstrip("/")
        while True:
            yield folder, limit, used
            if folder in (top, top.parent):
                break
            folder = folder.parent


def _own_groups() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    try:
        value = int(path.read_text())
    except (OSError, ValueError):
        return None
    return value if value < 1 << 60 else None  # version 1 says "no limit" with a huge number


def _cache(folder: Path) -> int:
    """Pages of files that count as used but make room when asked."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    names = ("inactive_file", "active_file")
    return sum(int(line.split()[1]) for line in lines if line.startswith(names))
