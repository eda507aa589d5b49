"""Downloading corpora from a local server that breaks, lies, changes its mind and attacks."""

import hashlib
import http.server
import io
import json
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from blackout.cli import data as data_verb
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.text.catalogue import CORPORA, Corpus, Download, Part
from blackout.text.download import download
from blackout.text.fetch import fetch, is_complete

TEXTS = {
    "train": b"".join(b"sentence number %d\n" % i for i in range(20_000)),
    "valid": b"a valid sentence\n",
    "test": b"a test sentence\n",
}


@dataclass
class Files:
    """What the server has, how it behaves and what it was asked."""

    files: dict[str, bytes]
    ranges: bool = True
    cut: int | None = None  # close the connection after so many bytes of a body
    cuts: int = 0  # how many times
    etag: str | None = '"1"'
    shift: int = 0  # begin a range so many bytes off
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server.what
        wanted = self.headers.get("Range")
        server.asked.append((self.path, wanted))
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        start = 0
        same = server.etag is not None and self.headers.get("If-Range") == server.etag
        if wanted and server.ranges and same:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
        if start >= len(body) > 0:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            start += server.shift
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = len(body)
        if server.cuts:
            server.cuts -= 1
            end = start + server.cut
        self.wfile.write(body[start:end])

    def log_message(self, *_):
        pass


@contextmanager
def serving(what):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.what = what
    what.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield what
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with serving(Files({})) as what:
        yield what


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def tar_of(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, body in members:
            entry = tarfile.TarInfo(name)
            if isinstance(body, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, body
                archive.addfile(entry)
            else:
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
    return stream.getvalue()


def zip_of(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members:
            archive.writestr(name, body)
    return stream.getvalue()


def usual_parts(checked=True):
    return tuple(
        Part(name, (f"*/wiki.{name}.tokens",), sha256(text) if checked else None)
        for name, text in TEXTS.items()
    )


def usual_members():
    return [("it/README", b"nothing")] + [
        (f"it/wiki.{name}.tokens", text) for name, text in TEXTS.items()
    ]


def corpus_of(server, archive, name="it.tar.gz", parts=None, checksum=True):
    server.files[f"/{name}"] = archive
    one = Download(f"{server.url}/{name}", sha256(archive) if checksum else None)
    return Corpus("it", ((one,),), parts or usual_parts())


def quickly(corpus, folder, attempts=1):
    return fetch(corpus, folder, attempts=attempts, pause=0)


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


WHOLE = ["corpus.json", "test", "train", "valid"]


@pytest.mark.parametrize(("name", "pack"), [("it.tar.gz", tar_of), ("it.zip", zip_of)])
def test_an_archive_becomes_three_texts(server, tmp_path, name, pack):
    corpus = corpus_of(server, pack(usual_members()), name)
    paths = quickly(corpus, tmp_path / "new" / "out")
    assert {part: path.read_bytes() for part, path in paths.items()} == TEXTS
    assert names(tmp_path / "new" / "out") == WHOLE


def test_plain_files_need_no_archive(server, tmp_path):
    server.files |= {f"/{name}.txt": text for name, text in TEXTS.items()}
    source = tuple(Download(f"{server.url}/{n}.txt", sha256(t)) for n, t in TEXTS.items())
    corpus = Corpus("plain", (source,), tuple(Part(n, (f"{n}.txt",)) for n in TEXTS))
    paths = quickly(corpus, tmp_path)
    assert {part: path.read_bytes() for part, path in paths.items()} == TEXTS


def test_shards_are_put_together_in_the_archives_order(server, tmp_path):
    members = [(f"it/shard-{i}", b"shard %d\n" % i) for i in (2, 1, 3)]
    parts = (Part("train", ("*/shard-?",), files=3),)
    corpus = corpus_of(server, tar_of(members), parts=parts)
    assert quickly(corpus, tmp_path)["train"].read_bytes() == b"shard 2\nshard 1\nshard 3\n"
    too_many = Corpus("it", corpus.sources, (Part("train", ("*/shard-?",), files=4),))
    with pytest.raises(UserError, match=r"it\.tar\.gz: train of it: made of 3 members, 4 expected"):
        quickly(too_many, tmp_path / "other")


def test_a_complete_corpus_is_left_alone(server, tmp_path):
    corpus = corpus_of(server, tar_of(usual_members()))
    assert not is_complete(corpus, tmp_path)
    quickly(corpus, tmp_path)
    assert is_complete(corpus, tmp_path)
    quickly(corpus, tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("checked", [True, False])
def test_a_damaged_text_is_brought_again(server, tmp_path, checked):
    corpus = corpus_of(server, tar_of(usual_members()), parts=usual_parts(checked))
    train = quickly(corpus, tmp_path)["train"]
    train.write_bytes(b"X" + TEXTS["train"][1:])
    assert not is_complete(corpus, tmp_path)
    quickly(corpus, tmp_path)
    assert train.read_bytes() == TEXTS["train"]


def test_an_interrupted_download_goes_on_with_the_next_command(server, tmp_path):
    archive = tar_of(usual_members())
    corpus = corpus_of(server, archive)
    server.cut, server.cuts = 1000, 1
    with pytest.raises(UserError, match=r"1,000 of .* bytes; 1,000 bytes are kept") as error:
        quickly(corpus, tmp_path)
    assert "\n" not in str(error.value)
    assert names(tmp_path) == [".download"]
    quickly(corpus, tmp_path)
    assert [asked for _, asked in server.asked] == [None, "bytes=1000-"]
    assert names(tmp_path) == WHOLE


def test_a_broken_connection_is_taken_up_again_by_itself(server, tmp_path):
    corpus = corpus_of(server, tar_of(usual_members()))
    server.cut, server.cuts = 1000, 2
    quickly(corpus, tmp_path, attempts=3)
    assert [asked for _, asked in server.asked] == [None, "bytes=1000-", "bytes=2000-"]
    assert is_complete(corpus, tmp_path)


@pytest.mark.parametrize("change", [{"ranges": False}, {"etag": None}, {"shift": -10}])
def test_a_server_without_ranges_means_a_fresh_start(server, tmp_path, change):
    for name, value in change.items():
        setattr(server, name, value)
    corpus = corpus_of(server, tar_of(usual_members()))
    server.cut, server.cuts = 1000, 1
    quickly(corpus, tmp_path, attempts=3)
    assert is_complete(corpus, tmp_path)


@pytest.mark.parametrize("honest", [True, False])
def test_a_file_that_changed_in_between_is_not_mixed(server, tmp_path, honest):
    """``honest``: the server says that it is another version; else only the checksum does."""
    server.files["/f"] = b"old " * 1000
    server.cut, server.cuts = 100, 1
    new = b"new!" * 1000
    what = Download(f"{server.url}/f", sha256(new))
    with pytest.raises(UserError, match="100 bytes are kept"):
        download(what, tmp_path / "f", attempts=1)
    server.files["/f"] = new
    if honest:
        server.etag = '"2"'
    assert download(what, tmp_path / "f", attempts=1).read_bytes() == new
    assert names(tmp_path) == ["f"]
    assert len(server.asked) == (2 if honest else 3)


@pytest.mark.parametrize("length", [50, 100])
def test_a_file_that_became_shorter_is_brought_anew(server, tmp_path, length):
    """Asked for bytes from 100 on, the server answers 416; a whole file gives that answer too."""
    server.files["/f"] = b"a" * 200
    server.cut, server.cuts = 100, 1
    what = Download(f"{server.url}/f", sha256(b"a" * length))
    with pytest.raises(UserError, match="100 bytes are kept"):
        download(what, tmp_path / "f", attempts=1)
    server.files["/f"] = b"a" * length
    assert download(what, tmp_path / "f", attempts=2, pause=0).read_bytes() == b"a" * length


def test_a_wrong_checksum_is_refused(server, tmp_path):
    archive = tar_of(usual_members())
    corpus = corpus_of(server, archive)
    server.files["/it.tar.gz"] = wrong = archive + b"!"
    with pytest.raises(UserError) as error:
        quickly(corpus, tmp_path)
    assert str(error.value) == (
        f"{server.url}/it.tar.gz: wrong checksum: "
        f"expected sha256 {sha256(archive)}, found {sha256(wrong)}"
    )
    assert names(tmp_path) == [".download"]
    assert names(tmp_path / ".download") == []


def test_a_wrong_text_in_an_archive_without_checksum_is_refused(server, tmp_path):
    members = [(name, body.replace(b"valid", b"false")) for name, body in usual_members()]
    corpus = corpus_of(server, tar_of(members), checksum=False)
    with pytest.raises(UserError, match=r"valid of it: wrong checksum: expected sha256 \w+, found"):
        quickly(corpus, tmp_path)
    assert names(tmp_path) == [".download"]


def test_a_text_that_swells_is_stopped(server, tmp_path):
    parts = (Part("train", ("*.tokens",), size=10_000),)
    corpus = corpus_of(server, zip_of([("it/a.tokens", bytes(10**7))]), "it.zip", parts)
    with pytest.raises(UserError, match=r"it\.zip: train has more than 10,000 bytes"):
        quickly(corpus, tmp_path)
    assert names(tmp_path) == [".download"]


def test_not_found_is_said_in_one_line(server, tmp_path):
    corpus = Corpus("it", ((Download(f"{server.url}/missing.zip"),),), usual_parts())
    with pytest.raises(UserError) as error:
        quickly(corpus, tmp_path)
    assert str(error.value) == f"{server.url}/missing.zip: HTTP status 404 Not Found"


def test_no_network_is_said_in_one_line(tmp_path):
    with serving(Files({})) as gone:
        url = f"{gone.url}/f"
    with pytest.raises(UserError) as error:
        quickly(Corpus("it", ((Download(url),),), usual_parts()), tmp_path)
    assert str(error.value) == f"{url}: cannot be reached: Connection refused"


def test_the_next_source_is_tried(server, tmp_path):
    corpus = corpus_of(server, tar_of(usual_members()))
    missing = (Download(f"{server.url}/missing.zip"),)
    quickly(Corpus("it", (missing, *corpus.sources), corpus.parts), tmp_path)
    assert [path for path, _ in server.asked] == ["/missing.zip", "/it.tar.gz"]
    assert names(tmp_path) == WHOLE


@pytest.mark.parametrize("pack", [tar_of, zip_of])
@pytest.mark.parametrize("evil", ["../evil", "it/../../evil", "/tmp/evil", "..\\evil"])
def test_a_member_that_climbs_out_is_refused(server, tmp_path, pack, evil):
    name = "it.zip" if pack is zip_of else "it.tar.gz"
    parts = (*usual_parts(), Part("more", ("*evil",)))
    corpus = corpus_of(server, pack([*usual_members(), (evil, b"evil")]), name, parts)
    with pytest.raises(UserError, match="outside its own folder"):
        quickly(corpus, tmp_path / "deep" / "out")
    assert names(tmp_path / "deep" / "out") == [".download"]
    assert names(tmp_path) == ["deep"]


def test_a_link_is_not_a_text(server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    members = [("it/wiki.train.tokens", str(secret)), *usual_members()[2:]]
    corpus = corpus_of(server, tar_of(members), parts=usual_parts(checked=False))
    with pytest.raises(UserError, match="train of it: made of 0 members, 1 expected"):
        quickly(corpus, tmp_path / "out")


@pytest.mark.parametrize(("name", "pack"), [("it.tar.gz", tar_of), ("it.zip", zip_of)])
def test_a_damaged_archive_is_named(server, tmp_path, name, pack):
    archive = bytearray(pack(usual_members()))
    archive[len(archive) // 3 : len(archive) // 3 + 200] = bytes(200)
    corpus = corpus_of(server, bytes(archive), name)
    with pytest.raises(UserError, match=re.escape(name)):
        quickly(corpus, tmp_path)
    assert names(tmp_path) == [".download"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk_is_said(server, tmp_path):
    server.files["/f"] = b"text"
    (tmp_path / "f.partial").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"f\.partial: cannot be written: the disk is full"):
        download(Download(f"{server.url}/f"), tmp_path / "f")


def test_too_little_space_is_said_before_the_download(server, tmp_path, monkeypatch):
    server.files["/f"] = bytes(5_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(UserError, match="needs 5 MB more, the disk has 1 MB free"):
        download(Download(f"{server.url}/f"), tmp_path / "f")


def test_the_verb(server, tmp_path, monkeypatch, capsys):
    corpus = corpus_of(server, tar_of(usual_members()))
    monkeypatch.setitem(data_verb.CORPORA, "wikitext-2", corpus)
    monkeypatch.chdir(tmp_path)
    assert main(["data", "wikitext-2", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["path"] == "data/it"
    assert main(["data", "wikitext-2", "--out", "data/it"]) == 0
    assert "it is complete already" in capsys.readouterr().out
    assert len(server.asked) == 1
    server.files.clear()
    assert main(["data", "wikitext-2", "--out", "elsewhere"]) == 1
    error = capsys.readouterr().err
    assert error == f"blackout data: {server.url}/it.tar.gz: HTTP status 404 Not Found\n"


def test_the_verb_needs_no_torch():
    code = "import sys, blackout.cli.data; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_catalogue_can_be_checked():
    """Every text has its three parts, and every byte of them is under some checksum."""
    for name, corpus in CORPORA.items():
        assert corpus.name == name
        parts = ["interactions"] if name == "amazon-video" else ["train", "valid", "test"]
        assert [part.name for part in corpus.parts] == parts
        for source in corpus.sources:
            archives_checked = all(one.sha256 for one in source)
            assert archives_checked or all(part.sha256 for part in corpus.parts)
            for digest in (*(one.sha256 for one in source), *(p.sha256 for p in corpus.parts)):
                assert digest is None or re.fullmatch("[0-9a-f]{64}", digest)
