"""Every word once an epoch, in the layout of the specification, from any block on."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackout import _native
from blackout.errors import UserError
from blackout.text.streams import Streams
from blackout.text.vocab import EOS


def text_of(lengths):
    """Sentences of these lengths; the words count up, so that each is known by its place."""
    tokens, word = [], 2
    for length in lengths:
        tokens += [*range(word, word + length), EOS]
        word += length
    offsets = np.cumsum([0] + [n + 1 for n in lengths]).astype(np.uint64)
    return SimpleNamespace(tokens=np.array(tokens, np.uint32), offsets=offsets)


def layout(text, order, batch):
    """The specification, word for word."""
    streams = [[] for _ in range(batch)]
    for i in order:
        shortest = min(range(batch), key=lambda s: (len(streams[s]), s))
        streams[shortest] += text.tokens[int(text.offsets[i]) : int(text.offsets[i + 1])].tolist()
    return streams


def check_against_layout(blocks, streams, batch, bptt):
    longest = max(map(len, streams))
    assert len(blocks) == -(-longest // bptt)
    for k, block in enumerate(blocks):
        assert block.inputs.shape == block.targets.shape == block.mask.shape == (bptt, batch)
        assert block.words == block.mask.sum()
        for b, stream in enumerate(streams):
            before = [EOS, *stream]
            for t in range(bptt):
                at = k * bptt + t
                there = at < len(stream)
                assert block.mask[t, b] == there
                assert block.targets[t, b] == (stream[at] if there else EOS)
                assert block.inputs[t, b] == (before[at] if there else EOS)


lengths = st.lists(st.integers(0, 12), min_size=1, max_size=40)
sizes = st.integers(1, 7)


@given(lengths, sizes, sizes, st.booleans(), st.integers(0, 3), st.integers(0, 3))
@settings(deadline=None, max_examples=200)
def test_layout_is_the_specification(lengths, batch, bptt, shuffle, seed, epoch):
    text = text_of(lengths)
    streams = Streams(text, batch, bptt, shuffle=shuffle, seed=seed, epoch=epoch)
    n = len(lengths)
    order = _native.shuffled(n, seed, epoch).tolist() if shuffle else range(n)
    blocks = list(streams)
    check_against_layout(blocks, layout(text, order, batch), batch, bptt)
    assert streams.blocks == streams.done == len(blocks)
    assert sum(block.words for block in blocks) == streams.words == len(text.tokens)
    trained = np.concatenate([block.targets[block.mask] for block in blocks])
    assert sorted(trained) == sorted(text.tokens)


@given(lengths, sizes, sizes, st.data())
@settings(deadline=None, max_examples=100)
def test_resume_at_any_block_equals_the_straight_run(lengths, batch, bptt, data):
    text = text_of(lengths)

    def make():
        return Streams(text, batch, bptt, shuffle=True, seed=5, epoch=2)

    straight = list(make())
    first = make()
    stop = data.draw(st.integers(0, len(straight)))
    for _ in range(stop):
        next(first)
    resumed = make()
    resumed.load_state(json.loads(json.dumps(first.state())))
    assert resumed.done == stop
    rest = list(resumed)
    assert len(rest) == len(straight) - stop
    for a, b in zip(straight[stop:], rest, strict=True):
        assert (a.inputs == b.inputs).all()
        assert (a.targets == b.targets).all()
        assert (a.mask == b.mask).all()
        assert a.words == b.words


def test_state_of_other_streams_is_refused():
    text = text_of([3, 4, 5])
    state = Streams(text, 2, 2, shuffle=True, seed=1, epoch=0).state()
    for other in ({"seed": 2}, {"epoch": 1}, {"shuffle": False}):
        settings = {"shuffle": True, "seed": 1, "epoch": 0, **other}
        with pytest.raises(UserError, match=next(iter(other))):
            Streams(text, 2, 2, **settings).load_state(state)
    with pytest.raises(UserError, match="tokens"):
        Streams(text_of([3, 4, 6]), 2, 2, shuffle=True, seed=1, epoch=0).load_state(state)
    for cursors in ([0] * 4, [9, 0, 0, 0, 0], [0, 5, 4, 0, 0], [0, 0, 99, 0, 0], [-1] * 5, "x"):
        with pytest.raises(UserError, match="damaged"):
            Streams(text, 2, 2, shuffle=True, seed=1, epoch=0).load_state(
                {**state, "cursors": cursors}
            )


def test_shuffled_is_a_permutation_that_depends_on_seed_and_epoch():
    orders = {tuple(_native.shuffled(50, seed, epoch)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_shuffled_is_uniform():
    """Each of the 24 orders of 4 things: chi-square over 24,000 draws, 23 degrees of freedom."""
    seen = {}
    for epoch in range(24_000):
        order = tuple(_native.shuffled(4, 7, epoch))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert sum((n - 1000) ** 2 / 1000 for n in seen.values()) < 60  # chance below 1e-4


def test_shuffled_stays_the_same_for_ever():
    """A run continued years later must see the same order."""
    assert _native.shuffled(8, 1, 0).tolist() == [0, 3, 7, 1, 4, 2, 6, 5]


@given(lengths, sizes, sizes)
@settings(deadline=None, max_examples=100)
def test_contiguous_streams_are_the_text_cut_between_sentences(lengths, batch, bptt):
    text = text_of(lengths)
    streams = Streams(text, batch, bptt, shuffle=False, seed=0, epoch=0, contiguous=True)
    blocks = list(streams)
    assert streams.blocks == len(blocks)
    targets = np.concatenate([block.targets for block in blocks])
    inputs = np.concatenate([block.inputs for block in blocks])
    mask = np.concatenate([block.mask for block in blocks])
    columns = [targets[mask[:, b], b].tolist() for b in range(batch)]
    assert [word for column in columns for word in column] == text.tokens.tolist()
    assert all(not column or column[-1] == EOS for column in columns)
    for b, column in enumerate(columns):
        assert inputs[mask[:, b], b].tolist() == [EOS, *column][: len(column)]


def test_contiguous_streams_cannot_be_shuffled():
    with pytest.raises(ValueError, match="shuffle"):
        Streams(text_of([3]), 1, 1, shuffle=True, seed=0, epoch=0, contiguous=True)
