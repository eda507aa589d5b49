"""Two processes that write to one place: one of them is there in the end, whole, or one is told."""

import subprocess
import sys

from blackout.cli.main import main
from blackout.text.prepared import open_prepared

WRITE = """
import sys
from blackout.files.atomic import replacing
for _ in range(200):
    with replacing(sys.argv[1]) as file:
        for _ in range(50):
            file.write(sys.argv[2].encode() * 1000)
"""


def test_a_file_is_of_one_of_them(tmp_path):
    path = tmp_path / "file"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, path, name]) for name in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            data = path.read_bytes()
            assert data in (b"a" * 50_000, b"b" * 50_000)
            seen.add(data[:1])
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_two_that_prepare_one_folder(lab, tmp_path, child, capsys):
    """Words of one text and numbers of another would be no text at all."""
    out = tmp_path / "out"
    go = tmp_path / "go"

    def start(part):
        def prepare():
            while not go.exists():
                pass
            return main(["prepare", "--train", str(lab.text(part)), "--out", str(out)])

        return child(prepare)

    children = [start("train"), start("valid")]
    go.touch()
    assert 0 in [process.wait() for process in children]
    open_prepared(out)
