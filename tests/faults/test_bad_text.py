"""Every text a person can get wrong gives one line that names the file, and the line in it."""

import gzip
import os
import subprocess
import sys

import pytest

from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.corpus import count_words, encode_file
from blackout.text.prepared import prepare
from blackout.text.vocab import Vocab

VOCAB = Vocab.from_counts({"a": 1})


def refusals(path, config=None, **settings):
    """What counting and encoding say; both must say the same."""
    messages = set()
    for read in (
        lambda: count_words(path, config, **settings),
        lambda: encode_file(path, VOCAB, config, path.parent / "shard", **settings),
    ):
        with pytest.raises(UserError) as caught:
            read()
        messages.add(str(caught.value))
    (message,) = messages
    assert str(path) in message
    assert "\n" not in message
    assert not (path.parent / "shard").exists()
    return message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no sentences"),
        (b"\n \n\t\r\n", "no sentences"),
        (b"\xef\xbb\xbf", "no sentences"),
        (b"ok\nbad \xff here\n", "line 2: invalid UTF-8 (byte 0xff); --replace-invalid"),
        (b"ok\n\nbad\xe2\x82", "line 3: invalid UTF-8 (byte 0xe2)"),
        (b"a \xed\xa0\x80\n", "line 1: invalid UTF-8 (byte 0xed)"),
        (b"a \xc0\xaf\n", "line 1: invalid UTF-8 (byte 0xc0)"),
        (b"ok\nnul \0 byte\n", "line 2: NUL byte"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0", "line 1: NUL byte, so this is not text"),
        (b"ok\nan </s> end\n", "line 2: literal </s> inside a line; --skip-markers"),
        (b"<s> a\n", "line 1: literal <s> inside a line"),
        (b"ok\n" + b"x" * 65537 + b"\n", "line 2: a word of more than 65536 bytes"),
        (b"\xff\xfea\0\n\0", "this is UTF-16, not UTF-8"),
        (gzip.compress(b"text", mtime=0), "this is gzip; give it a name that ends in .gz"),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"chunk_bytes": 9, "threads": 3}])
def test_bad_bytes(tmp_path, data, message, settings):
    path = tmp_path / "text"
    path.write_bytes(data)
    assert message in refusals(path, **settings)


@pytest.mark.parametrize("fault", [b"\xff", b"\0", b"</s>", b"x" * 70_000])
@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_fault_is_the_one_reported(tmp_path, fault, threads):
    """Threads meet faults in any order; the message is about the first in the file."""
    lines = [b"a b c"] * 5000
    for at in (1234, 2500, 3333, 4999):
        lines[at] = b"a " + fault
    path = tmp_path / "text"
    path.write_bytes(b"\n".join(lines))
    for chunk_bytes in (1000, 1 << 20):
        message = refusals(path, threads=threads, chunk_bytes=chunk_bytes)
        assert f"{path}: line 1235: " in message


def test_lines_are_counted_for_each_file(tmp_path):
    (tmp_path / "1").write_text("a\n" * 10)
    (tmp_path / "2").write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match="2: line 2: invalid"):
        count_words([tmp_path / "1", tmp_path / "2"])


def test_files_that_are_none(tmp_path):
    assert "No such file" in refusals(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    assert "is a folder, not a text file" in refusals(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusals(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "text"
    path.write_text("a\n")
    path.chmod(0)
    assert "Permission denied" in refusals(path)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_compressed_text(tmp_path, suffix):
    import lzma

    pack = gzip.compress if suffix == ".gz" else lzma.compress
    whole = pack(os.urandom(3000).hex().encode())
    path = tmp_path / f"text{suffix}"
    for damaged in (whole[: len(whole) // 2], b"plain text\n", whole[:100] + b"!!" + whole[102:]):
        path.write_bytes(damaged)
        assert f"damaged or incomplete {suffix[1:]} file" in refusals(path)


def test_out_is_a_file(tmp_path):
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(UserError, match="text: cannot make this folder"):
        prepare(tmp_path / "text", tmp_path / "text", TextConfig())


def test_threads_below_zero(tmp_path):
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(UserError, match="threads is -1"):
        count_words(tmp_path / "text", threads=-1)


MEASURE = """
import resource, sys
from pathlib import Path
from blackout.errors import UserError
from blackout.text.prepared import prepare
folder = Path(sys.argv[1])
(folder / "small").write_text("a b\\n")
prepare(folder / "small", folder / "warm")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    prepared = prepare(folder / "text", folder / "out", threads=2)
    print(len(prepared.shard("train").tokens), prepared.shard("train").sentences)
except UserError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def in_a_process_of_its_own(folder):
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder)], capture_output=True, text=True, check=True
    )
    said, grown = done.stdout.splitlines()
    return said, int(grown) / 1024  # MiB


def test_a_line_of_100_mb_is_read_in_bounded_memory(tmp_path):
    with open(tmp_path / "text", "wb") as file:
        for _ in range(100):
            file.write(b"word and another " * 61_681)  # 1 MiB
    said, grown = in_a_process_of_its_own(tmp_path)
    assert said == f"{100 * 61_681 * 3 + 1} 1"
    assert grown < 64


def test_a_word_of_100_mb_is_refused_in_bounded_memory(tmp_path):
    with open(tmp_path / "text", "wb") as file:
        file.write(b"fine\n")
        for _ in range(100):
            file.write(b"x" * (1 << 20))
    said, grown = in_a_process_of_its_own(tmp_path)
    assert said == f"{tmp_path / 'text'}: line 2: a word of more than 65536 bytes"
    assert grown < 64
