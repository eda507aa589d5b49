"""One file from a server, whole and unharmed: resumed where it broke off, checked, or refused.

What has arrived waits in ``NAME.partial`` beside ``NAME``; a note ``NAME.partial.json`` says which
version of the file it is (the server's ETag or date), so that two versions are never put together.

Written here because the libraries for this, such as pooch, begin a broken download anew: a corpus
of two gigabytes over a line that breaks never arrives. What they would take off our hands, asking
and hashing, is the smaller part.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from blackout.errors import UserError
from blackout.files.plain_json import from_json
from blackout.text.catalogue import Download

__all__ = ["Unreachable", "download", "earlier", "file_sha256"]

_PIECE = 1 << 20
_TIMEOUT = 60.0
# some servers refuse the name urllib gives itself
_HEADERS = {"User-Agent": "blackout-lm", "Accept-Encoding": "identity"}

Report = Callable[[int, int | None], None]
"""Told the bytes that are there and, where known, all there will be."""


class Unreachable(UserError):
    """A server did not give the file: another one may."""


class _Broken(Exception):
    """The connection ended early; what came is kept."""


def download(
    what: Download,
    path: Path,
    report: Report = lambda done, total: None,
    *,
    attempts: int = 5,
    pause: float = 2.0,
) -> Path:
    """Brings a file to ``path`` and checks it; goes on with an earlier, broken attempt.

    A broken connection is taken up again up to ``attempts`` times in all, ``pause`` seconds apart.
    A file with the wrong checksum never stands at ``path``.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "there").write_text("a text")
    >>> download(Download((folder / "there").as_uri()), folder / "here").read_text()
    'a text'
    """
    partial = path.with_name(path.name + ".partial")
    resumed = _fetch(what.url, partial, report, attempts, pause)
    found = _finish(what, partial, path)
    if found is not None and resumed:
        # The two attempts may have met two versions of the file: fetched once more from its start.
        _fetch(what.url, partial, report, attempts, pause)
        found = _finish(what, partial, path)
    if found is not None:
        raise UserError(f"{what.url}: wrong checksum: expected sha256 {what.sha256}, found {found}")
    return path


def _finish(what: Download, partial: Path, path: Path) -> str | None:
    """Puts a right file in its place; removes a wrong one and gives its checksum."""
    found = file_sha256(partial)
    if what.sha256 in (None, found):
        os.replace(partial, path)
        _forget(partial)
        return None
    _forget(partial)
    return found


def _fetch(url: str, partial: Path, report: Report, attempts: int, pause: float) -> bool:
    """Fills ``partial``; gives whether it holds pieces of more than one attempt."""
    resumed = False
    for left in reversed(range(attempts)):
        try:
            return _attempt(url, partial, report) or resumed
        except _Broken as error:
            resumed = True
            if not left:
                have = partial.stat().st_size if partial.exists() else 0
                raise Unreachable(
                    f"{url}: {error}; {have:,} bytes are kept, the same command goes on"
                ) from None
            time.sleep(pause)
    raise AssertionError("unreachable")


def _attempt(url: str, partial: Path, report: Report) -> bool:
    """One request; gives whether it went on with earlier bytes."""
    have, version = earlier(url, partial)
    headers = dict(_HEADERS)
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            if response.status != 206:  # without ranges, or of another version, all of it comes
                have = 0
            elif not _continues(response, have):
                _forget(partial)
                raise _Broken("the server sent another range than asked for")
            total = _total(response, have)
            _remember(url, partial, response)
            _require_space(partial, total, have)
            _receive(response, partial, have, total, report)
            return have > 0
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send, or the file became shorter
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return True
            _forget(partial)
            raise _Broken("the file on the server has changed") from None
        raise Unreachable(f"{url}: HTTP status {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise Unreachable(f"{url}: cannot be reached: {_reason(error)}") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _Broken(f"the connection broke ({type(error).__name__})") from None


def _reason(error: urllib.error.URLError) -> str:
    reason = error.reason
    return (reason.strerror or str(reason)) if isinstance(reason, OSError) else str(reason)


def earlier(url: str, partial: Path) -> tuple[int, str]:
    """How many bytes an earlier attempt left, and of which version of the file."""
    try:
        note = from_json(_note(partial).read_bytes())
        version = note["version"]
        if note["url"] == url and _can_be_sent(version):
            return partial.stat().st_size, version
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, ""


def _can_be_sent(version: Any) -> bool:
    """Whether a header may hold it; a damaged note has anything."""
    if not isinstance(version, str):
        return False
    return version != "" and version.isascii() and version.isprintable()


def _remember(url: str, partial: Path, response: Any) -> None:
    etag = response.headers.get("ETag")
    if etag is None or etag.startswith("W/"):  # a weak one does not promise the same bytes
        etag = response.headers.get("Last-Modified")
    with _writing(partial):
        _note(partial).write_text(json.dumps({"url": url, "version": etag}), encoding="utf-8")


def _forget(partial: Path) -> None:
    for path in (_note(partial), partial):
        path.unlink(missing_ok=True)


def _note(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _continues(response: Any, have: int) -> bool:
    """Whether a partial answer begins where the bytes we have end."""
    return str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-")


def _total(response: Any, have: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return have + int(length) if length.isdigit() else None


def _receive(
    response: IO[bytes], partial: Path, have: int, total: int | None, report: Report
) -> None:
    with _writing(partial), partial.open("ab" if have else "wb") as file:
        report(have, total)
        while piece := _read(response):
            file.write(piece)
            have += len(piece)
            report(have, total)
        file.flush()
    if total is not None and have != total:
        raise _Broken(f"the connection broke after {have:,} of {total:,} bytes")


def _read(response: IO[bytes]) -> bytes:
    try:
        return response.read(_PIECE)
    except http.client.IncompleteRead as error:
        return error.partial
    except OSError as error:  # kept apart from the errors of our own disk
        raise _Broken(f"the connection broke ({error.strerror or error})") from None


def _require_space(partial: Path, total: int | None, have: int) -> None:
    free = shutil.disk_usage(partial.parent).free
    if total is not None and total - have > free:
        raise UserError(
            f"{partial.parent}: needs {(total - have) / 1e6:,.0f} MB more, "
            f"the disk has {free / 1e6:,.0f} MB free"
        )


@contextlib.contextmanager
def _writing(path: Path) -> Any:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise UserError(f"{path}: cannot be written: {reason}") from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
