"""Bad n-gram files and settings: one line that names the file, and the line in it."""

import subprocess
import sys

import pytest

from blackout.errors import UserError
from blackout.ngram import NGram, evaluate, train

GOOD = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1 <unk>
-99 <s> -0.5
-0.5 </s>
-0.4 a -0.1

\\2-grams:
-0.2 <s> a
-0.3 a </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "m.arpa"
    path.write_text(GOOD)
    return path


def refusal(path):
    with pytest.raises(UserError) as caught:
        NGram.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_the_good_file_is_good(arpa):
    assert NGram.load(arpa).ngrams == (4, 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "\\date\\", "line 15: no \\data\\ line; this is not an ARPA file"),
        ("ngram 1=4", "ngram 1=x", "line 2: expected 'ngram N=count', found 'ngram 1=x'"),
        ("ngram 1=4", "ngram 1=-4", "line 2: expected 'ngram N=count', found 'ngram 1=-4'"),
        ("ngram 2=2", "ngram 3=2", "line 3: expected 'ngram 2=', found 'ngram 3=2'"),
        ("ngram 2=2", "ngram 2=3", "line 15: the section \\2-grams: ends after 2 2-grams, but 3"),
        ("ngram 2=2", "ngram 2=1", "line 13: more than the 1 2-gram that were announced"),
        ("ngram 1=4", "ngram 1=5", "line 11: the section \\1-grams: ends after 4 1-grams"),
        ("\\1-grams:", "\\2-grams:", "line 5: expected \\1-grams:, found '\\2-grams:'"),
        ("\\2-grams:", "\\3-grams:", "line 11: expected \\2-grams:, found '\\3-grams:'"),
        ("\\end\\", "\\3-grams:", "line 15: expected \\end\\, found '\\3-grams:'"),
        ("\\end\\\n", "", "line 14: the file ends before \\end\\"),
        ("-0.4 a", "-0.4x a", "line 9: '-0.4x' is not a number"),
        ("-0.4 a", "nan a", "line 9: 'nan' is not a number"),
        ("-0.4 a", "1e999 a", "line 9: '1e999' is not a number"),
        ("-0.4 a -0.1", "-0.4 a 0,1", "line 9: '0,1' is not a number"),
        ("-0.4 a", "0.4 a", "line 9: log10 probability 0.4 is above 0"),
        ("-0.4 a -0.1", "-0.4", "line 9: expected a number, 1 word and perhaps a number"),
        ("-0.2 <s> a", "-0.2 <s> a b c", "line 12: expected a number, 2 words and perhaps"),
        ("-0.2 <s> a", "-0.2 a", "line 12: expected a number, 2 words and perhaps"),
        ("-0.2 <s> a", "-0.2 <s> b", "line 12: the word 'b' is not among the 1-grams"),
        ("-0.2 <s> a", "-0.2 <s> a -1", "line 12: a back-off weight on an n-gram of the highest"),
        ("-0.5 </s>", "-0.5 <s>", "line 8: the 1-gram '<s>' stands there twice"),
        ("-0.2 <s> a", "-0.2 a </s>", "line 13: the 2-gram 'a </s>' stands there twice"),
    ],
)
def test_damage_is_named_with_its_line(arpa, old, new, message):
    assert old in GOOD
    arpa.write_text(GOOD.replace(old, new))
    assert refusal(arpa).startswith(message)


def test_invalid_utf8(arpa):
    arpa.write_bytes(GOOD.encode().replace(b"-0.4 a", b"-0.4 \xff\xfe"))
    assert refusal(arpa) == "line 9: invalid UTF-8"


def test_order_too_high(arpa):
    counts = "".join(f"ngram {n}=1\n" for n in range(1, 12))
    arpa.write_text("\\data\\\n" + counts)
    assert refusal(arpa).startswith("line 12: order 11 is above the highest that can be read, 10")


def test_every_truncation_is_refused(arpa):
    data = GOOD.encode()
    for size in range(len(data) - 1):  # only the last line end may be missing
        arpa.write_bytes(data[:size])
        assert refusal(arpa)
    arpa.write_bytes(data[:-1])
    NGram.load(arpa)


def test_files_that_are_no_models(tmp_path):
    assert refusal(tmp_path / "none.arpa").startswith("cannot be read: No such file")
    assert refusal(tmp_path).startswith("is a folder")
    (tmp_path / "empty").write_bytes(b"")
    assert "not an ARPA file" in refusal(tmp_path / "empty")
    (tmp_path / "zeros").write_bytes(bytes(10 << 20))
    assert refusal(tmp_path / "zeros").startswith("line 1: longer than any n-gram")
    (tmp_path / "bad.arpa.gz").write_bytes(b"\x1f\x8b\x08\x00nonsense")
    assert refusal(tmp_path / "bad.arpa.gz").startswith("damaged or incomplete gz file")


def test_every_truncation_and_flipped_bit_of_the_binary_form(arpa, tmp_path):
    path = tmp_path / "m.bin"
    NGram.load(arpa).save(path)
    data = path.read_bytes()
    for size in range(8, len(data), 7):
        path.write_bytes(data[:size])
        refusal(path)
    for place in range(8, len(data), 3):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        assert refusal(path).startswith(("damaged", "binary n-gram model of version", "made on"))
    path.write_bytes(data + b"\0")
    assert refusal(path).startswith("damaged")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 0}, "order is 0, must be 1 to 6"),
        ({"order": 7}, "order is 7, must be 1 to 6"),
        ({"memory": 100}, "memory is 100, must be at least 4096 bytes"),
        ({"memory": "much"}, "memory 'much' is not a size"),
        ({"memory": "1000000G"}, "memory is 1000000G, but the machine has "),
        ({"threads": 5000}, "threads is 5000, must be at most 1,024"),
        ({"prune": [2**70]}, "prune thresholds"),
        ({"prune": [1, 0]}, "prune thresholds 1 0 must be 0 or more, below"),
        ({"prune": [-1]}, "prune thresholds -1 must be"),
        ({"order": 2, "prune": [0, 0, 1]}, "prune has 3 thresholds, but the order is 2"),
        ({"discount_fallback": [0.5, 1, 9]}, "discount fallback 0.5 1 9 must be three numbers"),
        ({"discount_fallback": [0.5]}, "discount fallback 0.5 must be three numbers"),
    ],
)
def test_bad_settings(tmp_path, settings, message):
    (tmp_path / "text").write_text("a b\n")
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        train(tmp_path / "text", tmp_path / "out.arpa", **settings)
    assert not (tmp_path / "out.arpa").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no sentences in it"),
        (b"\n\n", "no sentences in it"),
        (b"a\nb \xff\n", "line 2: invalid UTF-8"),
        (b"a\nb\nc </s> d\n", "line 3: literal </s>"),
        (b"a\0b\n", "line 1: NUL byte"),
    ],
)
def test_bad_text(arpa, tmp_path, data, message):
    text, out = tmp_path / "text", tmp_path / "out.arpa"
    text.write_bytes(data)
    for read in (lambda: train(text, out), lambda: evaluate(NGram.load(arpa), text)):
        with pytest.raises(UserError) as caught:
            read()
        assert str(caught.value).startswith(f"{text}: {message}")
    assert not out.exists()


def test_bad_vocabulary_file(tmp_path):
    (tmp_path / "text").write_text("a b\n")
    vocab = tmp_path / "vocab"
    for data, message in [
        (b"", "no words in it"),
        (b"a\nb c\n", "line 2: more than one word"),
        (b"a\n\xff\n", "line 2: invalid UTF-8"),
    ]:
        vocab.write_bytes(data)
        with pytest.raises(UserError) as caught:
            train(tmp_path / "text", tmp_path / "out.arpa", vocab=vocab)
        assert str(caught.value) == f"{vocab}: {message}"


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "text").write_text("a b c d\n" * 100)
    with pytest.raises(UserError, match=r"none/out\.arpa: cannot be written"):
        train(tmp_path / "text", tmp_path / "none" / "out.arpa")
    with pytest.raises(UserError, match=r"temporary folder .*/none: cannot create a file: No such"):
        train(tmp_path / "text", tmp_path / "out.arpa", temp_dir=tmp_path / "none")
    assert not (tmp_path / "out.arpa").exists()


def test_full_disk_leaves_the_old_model(tmp_path):
    """A limit on the size of files stands for a full disk."""
    (tmp_path / "text").write_text("".join(f"a{i} b{i % 7} c{i % 11}\n" for i in range(3000)))
    out = tmp_path / "out.arpa"
    out.write_text("old")
    code = (
        "import resource, signal, sys\n"
        "from blackout.errors import UserError\n"
        "from blackout.ngram import train\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "try: train(sys.argv[1], sys.argv[2], memory=sys.argv[5], temp_dir=sys.argv[4])\n"
        "except UserError as error: print(error)\n"
    )
    messages = []
    for limit, memory in ((10_000, "4K"), (300_000, "1G")):
        arguments = [tmp_path / "text", out, str(limit), tmp_path, memory]
        command = [sys.executable, "-c", code, *arguments]
        messages.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert out.read_text() == "old"
    assert f"temporary folder {tmp_path}: cannot write: File too large" in messages[0]
    assert f"{out}: cannot be written: File too large" in messages[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.arpa", "text"]


def test_interrupted_leaves_nothing(tmp_path):
    (tmp_path / "text").write_text("a b c d\n" * 100)

    def stop(stage, done, total):
        if "interpolating" in stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "text", tmp_path / "out.arpa", progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["text"]
