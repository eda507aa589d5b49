"""``blackout serve MODEL…``: a page and an HTTP API over models."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from blackout.cli.common import Computing, Output, parse
from blackout.errors import UserError

if TYPE_CHECKING:
    from blackout.ngram import NGram
    from blackout.serve.gate import Limits
    from blackout.serve.shelf import Shelf

TOKEN = "BLACKOUT_TOKEN"


@dataclass
class ServeOptions:
    """A page to look into models, and an HTTP API: blackout serve MODEL [MODEL …]

    With --ngram each network is there alone and mixed with it. Whoever can reach an address other
    than 127.0.0.1 needs a token: that of the environment variable BLACKOUT_TOKEN, or a new one.
    """

    models: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of models or runs."""
    ngram: Path | None = None
    """An n-gram, ARPA or binary form."""
    weight: float = 0.5
    """Share of a network in its mixture with the n-gram."""
    tune: Path | None = None
    """Text to find that share on, by EM, instead."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on; 0 for one that is free."""
    max_words: int = 2000
    """Words of a text that are read for one question."""
    max_bytes: int = 1 << 20
    """Bytes of a question."""
    max_seconds: float = 60.0
    """Time for a question and its answer."""
    max_open: int = 64
    """Questions of one address that may be open at a time."""
    max_open_in_all: int = 256
    """Questions of everybody that may be open at a time."""
    computing: Computing = field(default_factory=Computing)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(ServeOptions, "serve", arguments)
    check(options)

    from blackout.serve.app import application  # Starlette and PyTorch come with it
    from blackout.serve.listen import Server, bind, is_own

    limits = limits_of(options)
    listening = bind(options.host, options.port)  # before the models: it takes no time
    with listening:
        token = None if is_own(listening) and TOKEN not in os.environ else wanted_token()
        shelf = load(options)
        address = address_of(options.host, listening.getsockname()[1])
        tell(options.output, shelf, address, token)
        Server(application(shelf, limits, token), listening).serve_forever()
    options.output.say("stopped")


def check(options: ServeOptions) -> None:
    """What can be refused before anything is loaded."""
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"{package} is not installed: pip install 'blackout-lm[serve]' brings it"
            )
    if not options.models and options.ngram is None:
        raise UserError("nothing to serve: name the folder of a model, or --ngram a file")
    for path in options.models:
        if not path.is_dir():
            raise UserError(f"{path}: no such model folder")
    if not 0 <= options.weight <= 1:
        raise UserError(f"weight is {options.weight}, must be from 0 to 1")
    if not 0 <= options.port < 2**16:
        raise UserError(f"port is {options.port}, must be from 0 to 65535")
    if options.tune is not None and (options.ngram is None or not options.models):
        raise UserError("tune: there is no mixture without a network and --ngram")


def limits_of(options: ServeOptions) -> Limits:
    from blackout.serve.gate import Limits

    found = {
        "body": options.max_bytes,
        "words": options.max_words,
        "seconds": options.max_seconds,
        "at_a_time": options.max_open,
        "in_all": options.max_open_in_all,
    }
    for value, name in zip(
        found.values(), ("bytes", "words", "seconds", "open", "open-in-all"), strict=True
    ):
        if not value > 0:
            raise UserError(f"max-{name} is {value}, must be above 0")
    return Limits(**found)  # type: ignore[arg-type]


def load(options: ServeOptions) -> Shelf:
    """The models, and their shares in the mixtures."""
    from blackout.ngram import NGram
    from blackout.serve.shelf import Shelf

    networks = [(_name(path), options.computing.load(path)) for path in options.models]
    ngram = None if options.ngram is None else (_name(options.ngram), NGram.load(options.ngram))
    shares = [options.weight] * len(networks)
    if options.tune is not None and ngram is not None:
        shares = [tuned(model, ngram[1], options.tune) for _, model in networks]
    return Shelf(networks, ngram, shares)


def tuned(network: Any, ngram: NGram, text: Path) -> float:
    """The share of a network under which a text is most probable."""
    from blackout.mixture.mixture import Mixture

    fit, _ = Mixture([("network", network), ("n-gram", ngram)]).tune(text)
    return float(fit.weights[0])


def _name(path: Path) -> str:
    """A folder's or file's own name, without what says that it is a file of n-grams."""
    name = path.resolve().name
    for end in (".gz", ".xz", ".arpa", ".bin"):
        name = name.removesuffix(end)
    return name or "model"


def wanted_token() -> str:
    """That of the environment, or a new one; never the command line's, which all can see."""
    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"{TOKEN}: a token is of letters, digits and signs without spaces")
    return token


def address_of(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/"


def tell(output: Output, shelf: Shelf, address: str, token: str | None) -> None:
    for about in shelf.about:
        output.say(f"{about['name']:<24} {about['kind']}, {about['words']:,} words")
    # behind the "#" it stays in the browser: no server, no log sees it
    page = address if token is None else f"{address}#token={token}"
    output.say(f"\n{page}   (Ctrl-C stops it)")
    output.result({"address": address, "models": shelf.names, "token": token})
