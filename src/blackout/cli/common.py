"""What the verbs share: options, output, reading command lines."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import tyro

from blackout import losses
from blackout.cli.on_ranks import is_first, join
from blackout.cli.streams import say_out
from blackout.config import Config
from blackout.errors import UserError
from blackout.files.atomic import replacing_text
from blackout.files.plain_json import to_json
from blackout.losses import LossName
from blackout.shown import visible

if TYPE_CHECKING:
    from blackout.models.language_model import LanguageModel

T = TypeVar("T")

# All settings of a run; in --help they stand under the names of their tables in run.toml.
Settings = Annotated[Config, tyro.conf.arg(name="")]


@dataclass
class Output:
    """How a verb talks."""

    json: bool = False
    """Print one JSON object as the last line on standard output; text goes to standard error."""
    debug: bool = False
    """Show the traceback of an error."""

    def say(self, text: str = "") -> None:
        """Text for people."""
        stream = sys.stderr if self.json else sys.stdout
        text = visible(text) if stream.isatty() else text
        if self.json:
            print(text, file=sys.stderr, flush=True)
        else:
            say_out(text)

    def result(self, values: Mapping[str, Any]) -> None:
        """The result for programs; only with ``--json``."""
        if self.json:
            say_out(to_json(values))


@dataclass
class Computing:
    """Which weights of a network, and where they are computed with."""

    last: bool = False
    """Take the weights of a network's newest checkpoint instead of the best."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    def load(self, folder: Path) -> LanguageModel:
        """The network in a folder, ready to compute."""
        from blackout.models.saved import load  # PyTorch comes with it
        from blackout.runtime import set_threads

        set_threads(self.threads)
        which: Literal["best", "last"] = "last" if self.last else "best"
        _, ranks = join(self.device)
        return load(folder, which=which, device=self.device, process_group=ranks)


@contextlib.contextmanager
def open_for_writing(path: Path | None) -> Iterator[IO[str] | None]:
    """A text file to write, there when it is complete; or None, as on all ranks but the first."""
    if path is None or not is_first():
        yield None
        return
    with replacing_text(path) as file:
        yield file


_CONSTRUCTORS = tyro.constructors.ConstructorRegistry()


@_CONSTRUCTORS.primitive_rule
def _loss_name(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[str] | None:
    """A loss is one of those that are registered."""
    if info.type is not LossName:
        return None
    names = tuple(losses.names())
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{" + ",".join(names) + "}",
        instance_from_str=lambda given: LossName(given[0]),
        is_instance=lambda value: isinstance(value, str),
        str_from_instance=lambda value: [value],
        choices=names,
    )


def parse(cls: type[T], verb: str, arguments: Sequence[str], default: T | None = None) -> T:
    """The options of a verb; wrong usage ends the program with status 2.

    A value that the settings refuse is an error like any other, one line and status 1: the parser,
    which takes every ValueError for wrong usage, is not heard on it.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options: Any = tyro.cli(
                cls,
                prog=f"blackout {verb}",
                args=list(arguments),
                default=default,
                config=(tyro.conf.OmitArgPrefixes,),
                registry=_CONSTRUCTORS,
            )
    except SystemExit as end:
        if (refused := _refusal(end)) is not None:
            raise refused from None
        sys.stderr.write(said.getvalue())
        raise
    return cast(T, options)


def _refusal(error: BaseException | None) -> UserError | None:
    """The user's error that an exception was raised because of."""
    while error is not None and not isinstance(error, UserError):
        error = error.__context__
    return error
