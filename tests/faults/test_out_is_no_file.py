"""Output goes where it is told: into links, pipes and devices, and over files as they were."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from blackout.errors import UserError
from blackout.files.atomic import replacing, replacing_text
from blackout.ngram import NGram, evaluate, train


def write(path, data=b"new"):
    with replacing(path) as file:
        file.write(data)


def test_a_link_is_followed(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    link.symlink_to("folder/real")
    write(link, b"first")  # it led nowhere
    assert link.is_symlink()
    assert real.read_bytes() == b"first"
    write(link, b"second")
    assert link.is_symlink()
    assert real.read_bytes() == b"second"
    assert [p.name for p in real.parent.iterdir()] == ["real"]


def test_a_link_to_itself_is_named(tmp_path):
    link = tmp_path / "loop"
    link.symlink_to(link)
    with pytest.raises(UserError, match="loop: cannot be written: Too many levels"):
        write(link)


def test_a_device_stays_a_device(tmp_path):
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write(null)
    assert null.is_symlink()
    try:
        os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        write(tmp_path / "device")
    except PermissionError:
        return  # only root makes devices
    assert (tmp_path / "device").is_char_device()


def test_a_pipe_is_written_to(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join()
    assert got == [b"through"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_device_is_an_error(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(UserError, match="full: cannot be written: No space left"):
        write(tmp_path / "full")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_an_existing_file_is_kept(tmp_path, mode):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_bytes() == b"new"


def test_standard_output_by_name(tmp_path):
    """`--probs /dev/stdout > file` must not rename another file over the one that is open."""
    code = (
        "from blackout.files.atomic import replacing_text\n"
        "print('before', flush=True)\n"
        "with replacing_text('/dev/stdout') as file: file.write('between\\n')\n"
        "print('after', flush=True)\n"
    )
    out = tmp_path / "out"
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert out.read_text().split() == ["before", "between", "after"]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "between", "after"]


def test_text_that_fails_leaves_the_old(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail():
        with replacing_text(path) as file:
            file.write("half" * 10_000)
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_ngram_into_a_link_and_a_dump_that_fails(tmp_path):
    (tmp_path / "text").write_text("a b\nb a\n" * 4)
    (tmp_path / "bad").write_bytes(b"a b\n" * 100_000 + b"\xff\n")
    (tmp_path / "link.arpa").symlink_to("real.arpa")
    train(tmp_path / "text", tmp_path / "link.arpa", order=2)
    assert (tmp_path / "link.arpa").is_symlink()
    model, dump = NGram.load(tmp_path / "real.arpa"), tmp_path / "dump"
    dump.write_text("old")
    with pytest.raises(UserError, match="line 100001"):
        evaluate(model, tmp_path / "bad", dump=dump)
    assert dump.read_text() == "old"
