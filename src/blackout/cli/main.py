"""The root of the command line: finds the verb, loads its file, and turns errors into one line.

Nothing heavy is imported before the verb is known: ``blackout --help`` answers at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from blackout.cli.on_ranks import leave, session, tell
from blackout.cli.streams import close_output, prepare_streams, say_out
from blackout.errors import UserError
from blackout.shown import on_one_line, visible

# verb → (module with a function ``main(arguments)``, what it does)
VERBS = {
    "demo": ("blackout.cli.demo", "train on text that ships with Python and compare losses"),
    "train": ("blackout.cli.train", "train a language model"),
    "tune": ("blackout.cli.tune", "settings by validation perplexity"),
    "eval": ("blackout.cli.eval", "exact perplexity of a text"),
    "generate": ("blackout.cli.generate", "text from a model"),
    "serve": ("blackout.cli.serve", "a page and an HTTP API to look into models"),
    "prepare": ("blackout.cli.prepare", "vocabulary and token shards, once for many runs"),
    "rescore": ("blackout.cli.rescore", "n-best lists scored again, weights tuned"),
    "bench train": ("blackout.cli.bench_train", "speed and memory of training"),
    "bench eval": ("blackout.cli.bench_eval", "speed of exact evaluation"),
    "reproduce": ("blackout.cli.reproduce", "a figure, table or claim of the paper, run again"),
    "data": ("blackout.cli.data", "download a public corpus"),
    "ngram train": ("blackout.cli.ngram_train", "a Kneser-Ney n-gram model from text"),
    "ngram eval": ("blackout.cli.ngram_eval", "perplexity of a text under an n-gram model"),
    "mix": ("blackout.cli.mix", "networks, n-grams and dumps mixed, their weights by EM"),
    "convert-rnnlm": ("blackout.cli.convert_rnnlm", "a model file of the paper's program"),
}


def entry() -> None:
    """The console script."""
    prepare_streams()
    try:
        status = main(sys.argv[1:])
    except SystemExit as end:  # --help and wrong usage
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BrokenPipeError:  # the reader of our output went away, e.g. `| head`
        status = 1
    finally:
        lost = close_output()
    if lost and not status:
        print(f"blackout: {lost}", file=sys.stderr)
    status = status or int(lost is not None)
    leave(status)
    sys.exit(status)


def main(arguments: Sequence[str]) -> int:
    """Runs a command line; gives the exit status: 0 done, 1 failed, 2 wrong usage."""
    verb, rest = split_verb(arguments)
    if verb is None:
        return without_verb(arguments)
    try:
        with session(verb):
            importlib.import_module(VERBS[verb][0]).main(rest)
    except UserError as error:
        if "--debug" in rest:
            raise
        tell(f"blackout {verb}:", on_one_line(error))
        return 1
    except KeyboardInterrupt:
        tell(f"blackout {verb}:", "interrupted")
        return 1
    except BrokenPipeError:
        raise
    except Exception as error:
        if "--debug" in rest:
            raise
        from blackout.memory import shortage

        said = shortage(error) or f"{type(error).__name__}: {error}"
        tell(f"blackout {verb}:", f"{on_one_line(said)} (--debug shows where)")
        return 1
    return 0


def without_verb(arguments: Sequence[str]) -> int:
    """Help, where it was asked for; else wrong usage."""
    if arguments and arguments[0] not in ("-h", "--help"):
        print(usage(), file=sys.stderr)
        print(f"blackout: unknown verb {visible(arguments[0])!r}", file=sys.stderr)
        return 2
    try:
        say_out(usage())
    except UserError as error:
        print(f"blackout: {error}", file=sys.stderr)
        return 1 if arguments else 2
    return 0 if arguments else 2


def split_verb(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The verb, of one word or two, and what follows it."""
    for words in (2, 1):
        verb = " ".join(arguments[:words])
        if verb in VERBS:
            return verb, list(arguments[words:])
    return None, []


def usage() -> str:
    lines = ["usage: blackout VERB [options]; blackout VERB --help tells more", ""]
    lines += [f"  {verb:<14} {about}" for verb, (_, about) in VERBS.items()]
    return "\n".join(lines)
