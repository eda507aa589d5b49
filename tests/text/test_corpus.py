"""Counting and encoding, against a plain Python reading of the same text."""

import gzip
import lzma
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackout import _native
from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.corpus import count_words, encode_file
from blackout.text.shards import Shard
from blackout.text.vocab import Vocab

SPACES = " \t\r\v\f"


def sentences_of(data, *, keep_empty=False, skip_markers=False):
    """The specification in plain Python; invalid bytes become U+FFFD."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").replace("\0", "�")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    sentences = []
    for line in lines:
        for space in SPACES:
            line = line.replace(space, " ")
        words = [word for word in line.split(" ") if word]
        if skip_markers:
            words = [word for word in words if word not in ("<s>", "</s>")]
        if words or keep_empty:
            sentences.append(words)
    return sentences


def counter_of(sentences):
    counts = Counter(word for sentence in sentences for word in sentence)
    return {"</s>": len(sentences), "<unk>": counts.pop("<unk>", 0), **counts}


# Short words that repeat, words around the 8 and 16 bytes that the table treats specially, every
# kind of white space, markers, broken and unbroken UTF-8.
word = st.one_of(
    st.sampled_from(["a", "b", "the", "<unk>", "<s", "s>", "été", "\xa0", "\u2028x", "\x85"]),
    st.text("xy", min_size=6, max_size=18),
    st.text(min_size=1, max_size=4),
)
separator = st.text(SPACES + "\n", min_size=1, max_size=3)
clean = st.lists(st.one_of(word, separator), max_size=60).map("".join)
pieces = st.one_of(word.map(str.encode), separator.map(str.encode), st.binary(max_size=4))
dirty = st.lists(pieces, max_size=60).map(b"".join)
cuts = st.tuples(st.integers(8, 40), st.integers(1, 4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def read(folder, data, config, chunk_bytes, threads):
    path = folder / "text"
    path.write_bytes(data)
    counts = count_words(path, config, threads, chunk_bytes=chunk_bytes)
    vocab = Vocab.from_counts(counts)
    shard = encode_file(path, vocab, config, folder / "shard", threads, chunk_bytes=chunk_bytes)
    return counts, vocab, shard


def check(folder, data, config, cut, sentences):
    if not sentences:
        return
    if b"\n" not in data and b"\r" in data[:-1]:
        with pytest.raises(UserError, match="its lines end in CR alone"):
            read(folder, data, config, *cut)
        return
    counts, vocab, shard = read(folder, data, config, *cut)
    assert counts.to_dict() == counter_of(sentences)
    assert counts.tokens == len(shard.tokens) == sum(len(s) + 1 for s in sentences)
    assert shard.unknown == counts.unknown
    decoded = [
        [vocab.word(i) for i in shard.tokens[a:b]]
        for a, b in zip(shard.offsets[:-1].tolist(), shard.offsets[1:].tolist(), strict=True)
    ]
    assert decoded == [[*sentence, "</s>"] for sentence in sentences]


@given(clean, cuts, st.booleans())
@settings(deadline=None, max_examples=150)
def test_clean_text(folder, text, cut, keep_empty):
    text = text.replace("\0", "").replace("<s>", "").replace("</s>", "")
    data = text.encode(errors="replace")
    config = TextConfig(keep_empty=keep_empty)
    check(folder, data, config, cut, sentences_of(data, keep_empty=keep_empty))


@given(dirty, cuts, st.booleans())
@settings(deadline=None, max_examples=300)
def test_any_bytes(folder, data, cut, keep_empty):
    config = TextConfig(keep_empty=keep_empty, skip_markers=True, replace_invalid=True)
    check(folder, data, config, cut, sentences_of(data, keep_empty=keep_empty, skip_markers=True))


def test_every_sequence_of_two_and_many_of_more_bytes(folder):
    """UTF-8 is judged exactly as Python judges it."""
    tails = [
        bytes([a, b])
        for a in (0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2)
        for b in (0x41, 0x80, 0xBF, 0xFF)
    ]
    pairs = [bytes([a, b]) for a in range(256) for b in range(256)]
    longer = [
        bytes([lead]) + x + y for lead in range(0xE0, 0x100) for x in tails for y in tails[:6]
    ]
    data = b"\n".join(
        b"a" + word + b"z" for word in pairs + longer if not set(word) & set(b" \t\n\v\f\r")
    )
    config = TextConfig(replace_invalid=True)
    check(folder, data, config, (1 << 20, 2), sentences_of(data))


def test_the_cut_makes_no_difference(folder):
    lines = [" ".join(f"w{i * j % 97}" for j in range(i % 13)) for i in range(150)]
    data = "\n".join(lines).encode()
    results = set()
    for chunk_bytes in (8, 9, 64, 1000, 1 << 20):
        for threads in (1, 2, 3, 8):
            _, vocab, shard = read(folder, data, TextConfig(), chunk_bytes, threads)
            results.add((vocab.hash, shard.tokens.tobytes(), shard.offsets.tobytes()))
    assert len(results) == 1


def test_line_ends_and_byte_order_mark(folder):
    for data in (b"a b\nc\n", b"a b\r\nc\r\n", b"\xef\xbb\xbfa b\nc", b"\n\n  a\tb \n \t\r\n c "):
        check(folder, data, TextConfig(), (8, 1), [["a", "b"], ["c"]])


def test_a_byte_order_mark_elsewhere_is_part_of_a_word(folder):
    check(folder, "a \ufeffb\n".encode(), TextConfig(), (8, 1), [["a", "\ufeffb"]])


def test_kept_empty_lines(folder):
    config = TextConfig(keep_empty=True)
    check(folder, b"\na\n \n\nb", config, (8, 1), [[], ["a"], [], [], ["b"]])
    check(folder, b"\n", config, (8, 1), [[]])


def test_skipped_markers(folder):
    data = b"<s> a </s>\n</s>\n<s>b\n"
    check(folder, data, TextConfig(skip_markers=True), (8, 1), [["a"], ["<s>b"]])
    both = TextConfig(skip_markers=True, keep_empty=True)
    check(folder, data, both, (8, 1), [["a"], [], ["<s>b"]])


def test_the_longest_word(folder):
    long = "x" * _native.MAX_WORD
    check(folder, f"a {long} b {long}".encode(), TextConfig(), (1000, 1), [["a", long, "b", long]])


def test_unknown_words(tmp_path):
    (tmp_path / "text").write_text("a b <unk>\nc a\n")
    vocab = Vocab.from_counts({"a": 1})
    shard = encode_file(tmp_path / "text", vocab, None, tmp_path / "shard")
    assert shard.tokens.tolist() == [2, 1, 1, 0, 1, 2, 0]
    assert (shard.unknown, shard.sentences, shard.words) == (3, 2, 5)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_text_reads_like_plain_text(tmp_path, suffix, pack):
    plain = b"a b c\nb c\n" * 1000
    (tmp_path / "plain").write_bytes(plain)
    (tmp_path / f"packed{suffix}").write_bytes(pack(plain[:5000]) + pack(plain[5000:]))
    a = count_words(tmp_path / "plain", chunk_bytes=777)
    seen = []
    b = count_words(
        tmp_path / f"packed{suffix}",
        chunk_bytes=777,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert a.to_dict() == b.to_dict()
    size = (tmp_path / f"packed{suffix}").stat().st_size
    assert seen[-1] == (size, size)
    assert b.sources[0].size == size


def test_several_files_are_counted_together(tmp_path):
    (tmp_path / "1").write_text("a b")  # the line ends with the file
    (tmp_path / "2").write_text("\ufeffb c\n")
    counts = count_words([tmp_path / "1", tmp_path / "2"])
    assert counts.to_dict() == {"</s>": 2, "<unk>": 0, "b": 2, "a": 1, "c": 1}


def test_a_shard_opens_as_it_was_written(tmp_path):
    (tmp_path / "text").write_text("a b\nc\n")
    vocab = Vocab.from_counts(count_words(tmp_path / "text"))
    written = encode_file(tmp_path / "text", vocab, TextConfig(min_count=3), tmp_path / "shard")
    opened = Shard.open(tmp_path / "shard", vocab)
    assert opened.tokens.tolist() == written.tokens.tolist() == [2, 3, 0, 4, 0]
    assert opened.options == TextConfig(min_count=3)
    assert opened.source.still(tmp_path / "text")
