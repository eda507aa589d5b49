"""A damaged shard, or one of another vocabulary, is refused by name."""

import random

import numpy as np
import pytest

from blackout import _native
from blackout.config import TextConfig
from blackout.errors import UserError
from blackout.text.corpus import encode_file
from blackout.text.shards import HEADER_BYTES, Shard, ShardWriter
from blackout.text.vocab import Vocab

VOCAB = Vocab.from_counts({"</s>": 3, "a": 2, "b": 1})


@pytest.fixture
def shard(tmp_path):
    (tmp_path / "text").write_text("a b\nb a c\n" * 50)
    return encode_file(tmp_path / "text", VOCAB, None, tmp_path / "text.shard").path


def refusal(path, **settings):
    with pytest.raises(UserError) as caught:
        Shard.open(path, VOCAB, **settings)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_checksum_is_xxh64(data, value):
    for cut in range(len(data) + 1):
        checksum = _native.Checksum()
        for piece in (data[:cut], data[cut:]):
            checksum.update(np.frombuffer(piece, np.uint8))
        assert checksum.value() == value


def test_every_damaged_byte_is_noticed(shard):
    whole = shard.read_bytes()
    Shard.open(shard, VOCAB)
    rng = random.Random(1)
    positions = {*range(40), *range(HEADER_BYTES - 16, HEADER_BYTES + 16), len(whole) - 1}
    positions |= set(rng.sample(range(len(whole)), 400))
    for at in positions:
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        shard.write_bytes(broken)
        refusal(shard)


def test_every_truncation_is_noticed(shard):
    whole = shard.read_bytes()
    lengths = [*range(20), 4095, 4096, 4097, len(whole) - 1, *range(0, len(whole), 97)]
    for length in lengths:
        shard.write_bytes(whole[:length])
        refusal(shard, verify=False)
    shard.write_bytes(whole + b"\0")
    assert "truncated or damaged" in refusal(shard, verify=False)


def test_each_fault_has_its_name(shard, tmp_path):
    whole = shard.read_bytes()
    assert "cannot be read" in refusal(tmp_path / "none.shard")
    shard.write_bytes(b"something else")
    assert "not a token shard" in refusal(shard)
    shard.write_bytes(whole[:100])
    assert "truncated" in refusal(shard)
    shard.write_bytes(whole[:8] + b"\x02" + whole[9:])
    assert "shard version 2, this program reads version 1" in refusal(shard)
    shard.write_bytes(whole[:50] + b"?" + whole[51:])
    assert "checksum of its header" in refusal(shard)
    shard.write_bytes(whole[:5000] + b"?" + whole[5001:])
    assert "checksum of its content" in refusal(shard)


def test_another_vocabulary_is_refused(shard):
    other = Vocab.from_counts({"</s>": 3, "a": 2, "c": 1})
    with pytest.raises(UserError, match="made with another vocabulary"):
        Shard.open(shard, other)
    assert Shard.open(shard).vocab_hash == VOCAB.hash


def test_a_failed_write_leaves_the_old_shard_and_nothing_else(shard, tmp_path):
    before = shard.read_bytes()
    names = sorted(p.name for p in tmp_path.iterdir())
    (tmp_path / "text").write_bytes(b"a b\n" * 1000 + b"\xff\n")
    with pytest.raises(UserError, match="line 1001"):
        encode_file(tmp_path / "text", VOCAB, None, shard, chunk_bytes=100)
    with pytest.raises(ValueError, match="not finished"), ShardWriter(shard, VOCAB) as writer:
        writer.add(np.array([2, 0], np.uint32), np.array([2], np.uint64))
    assert shard.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_a_shard_that_cannot_be_written(tmp_path):
    (tmp_path / "text").write_text("a\n")
    target = tmp_path / "no" / "such" / "folder.shard"
    with pytest.raises(UserError, match=r"folder\.shard: cannot be written"):
        encode_file(tmp_path / "text", VOCAB, TextConfig(), target)


def test_odd_and_even_numbers_of_tokens(tmp_path):
    """The offsets lie behind padding when the tokens do not fill 8 bytes."""
    for text in ("a\n", "a b\n", "a\nb\n", "a b\na\n"):
        (tmp_path / "text").write_text(text)
        made = encode_file(tmp_path / "text", VOCAB, None, tmp_path / "s")
        opened = Shard.open(made.path, VOCAB)
        assert opened.offsets[-1] == len(opened.tokens) == len(text.split()) + text.count("\n")
