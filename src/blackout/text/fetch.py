"""A public corpus as a folder of ``train``, ``valid`` and ``test``: downloaded, checked, unpacked.

Nothing in an archive decides where a byte goes: members are read as streams and written to the
three known names. A file ``corpus.json`` with sizes and hashes, written last, says that the folder
is complete.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.files.plain_json import from_json
from blackout.text.catalogue import Corpus, Download, Part
from blackout.text.download import Report, Unreachable, download, file_sha256

__all__ = ["fetch", "is_complete"]

_PIECE = 1 << 20
_RECORD = "corpus.json"


def fetch(
    corpus: Corpus,
    folder: str | Path,
    report: Report = lambda done, total: None,
    *,
    attempts: int = 5,
    pause: float = 2.0,
) -> dict[str, Path]:
    """Brings a corpus into ``folder``; gives the paths of its parts.

    A complete folder is left as it is. An interrupted download goes on where it stopped. The
    downloads are removed once the parts are written.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("a text")
    >>> source = (Download((folder / "a.txt").as_uri()),)
    >>> corpus = Corpus("mine", (source,), (Part("train", ("a.txt",)),))
    >>> fetch(corpus, folder / "mine")["train"].read_text()
    'a text'
    """
    folder = Path(folder)
    paths = {part.name: folder / part.name for part in corpus.parts}
    if is_complete(corpus, folder):
        return paths
    waiting = folder / ".download"
    try:
        waiting.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from None
    failures = []
    for source in corpus.sources:
        try:
            files = [_bring(one, waiting, report, attempts, pause) for one in source]
        except Unreachable as error:
            failures.append(str(error))
            continue
        _unpack(corpus, files, folder)
        shutil.rmtree(waiting, ignore_errors=True)
        return paths
    raise UserError("; ".join(failures))


def is_complete(corpus: Corpus, folder: str | Path) -> bool:
    """Whether the folder holds this corpus, every byte of it."""
    folder = Path(folder)
    try:
        record = from_json((folder / _RECORD).read_bytes())
        if record["name"] != corpus.name:
            return False
        return all(
            file_sha256(folder / part.name) == (part.sha256 or record["sha256"][part.name])
            for part in corpus.parts
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _bring(one: Download, waiting: Path, report: Report, attempts: int, pause: float) -> Path:
    path = waiting / one.name
    if one.sha256 and path.is_file() and file_sha256(path) == one.sha256:
        return path  # an earlier attempt failed at a later file
    return download(one, path, report, attempts=attempts, pause=pause)


# ---------------------------------------------------------------------- unpacking


def _unpack(corpus: Corpus, files: list[Path], folder: Path) -> None:
    """Writes all parts, or, if anything is wrong with any of them, none."""
    hashes = {}
    with ExitStack() as stack:
        # `replacing` renames only when the whole stack has ended well
        outputs = {
            part.name: stack.enter_context(replacing(folder / part.name)) for part in corpus.parts
        }
        writers = {part.name: _Writer(part, outputs[part.name]) for part in corpus.parts}
        for path in files:
            for name, stream in _members(path):
                for part in corpus.parts:
                    if any(fnmatch.fnmatchcase(name, pattern) for pattern in part.members):
                        writers[part.name].add(path, stream)
                        break
        for writer in writers.values():
            hashes[writer.part.name] = writer.finish(corpus.name, files)
    with replacing(folder / _RECORD) as record:
        record.write(json.dumps({"name": corpus.name, "sha256": hashes}, indent=1).encode() + b"\n")


class _Writer:
    """Puts the members of one part together and checks them."""

    def __init__(self, part: Part, file: IO[bytes]) -> None:
        self.part, self.file = part, file
        self.members = self.size = 0
        self.digest = hashlib.sha256()

    def add(self, source: Path, stream: IO[bytes]) -> None:
        self.members += 1
        while piece := _read(source, stream):
            self.size += len(piece)
            if self.part.size is not None and self.size > self.part.size:
                raise UserError(
                    f"{source.name}: {self.part.name} has more than {self.part.size:,} bytes"
                )
            self.digest.update(piece)
            self.file.write(piece)

    def finish(self, corpus: str, sources: list[Path]) -> str:
        """The part's hash, if it is whole."""
        part, found = self.part, self.digest.hexdigest()
        where = f"{', '.join(path.name for path in sources)}: {part.name} of {corpus}"
        if self.members != part.files:
            raise UserError(f"{where}: made of {self.members} members, {part.files} expected")
        if part.sha256 not in (None, found):
            raise UserError(
                f"{where}: wrong checksum: expected sha256 {part.sha256}, found {found}"
            )
        return found


def _read(source: Path, stream: IO[bytes]) -> bytes:
    try:
        return stream.read(_PIECE)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise UserError(f"{source.name}: damaged archive: {error}") from None


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files in an archive, in its order; a plain file is its own only member."""
    if zipfile.is_zipfile(path):
        yield from _zip_members(path)
    elif path.name.endswith((".tgz", ".tar.gz", ".tar")):
        yield from _tar_members(path)
    else:
        with path.open("rb") as stream:
            yield path.name, stream


def _zip_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                _require_safe(path, entry.filename)
                if not entry.is_dir():
                    with archive.open(entry) as stream:
                        yield entry.filename, stream
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{path.name}: damaged archive: {error}") from None


def _tar_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        with tarfile.open(path, "r|*") as archive:  # one pass, nothing held in memory
            for entry in archive:
                _require_safe(path, entry.name)
                if entry.isreg():
                    stream = archive.extractfile(entry)
                    assert stream is not None
                    yield entry.name, stream
    except (tarfile.TarError, zlib.error, EOFError) as error:
        raise UserError(f"{path.name}: damaged archive: {error}") from None


def _require_safe(path: Path, name: str) -> None:
    """Members are never written under their own names; one that tries to climb is a bad sign."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts:
        raise UserError(f"{path.name}: refused: it has a member {name!r} outside its own folder")
