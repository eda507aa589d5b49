"""Word errors against the textbook recursion."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from blackout.rescore.wer import word_errors

SENTENCE = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=7)


def naive(reference, hypothesis):
    @cache
    def distance(i, j):
        if i == 0 or j == 0:
            return i + j
        substituted = distance(i - 1, j - 1) + (reference[i - 1] != hypothesis[j - 1])
        return min(substituted, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(reference), len(hypothesis))


@settings(max_examples=300, deadline=None)
@given(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=6))
def test_equal_to_the_recursion(reference, hypotheses):
    expected = [naive(reference, hypothesis) for hypothesis in hypotheses]
    assert word_errors(reference, hypotheses).tolist() == expected


def test_by_hand():
    words = ["the", "cat", "sat", "on", "the", "mat"]
    assert word_errors(words, [words]).tolist() == [0]
    assert word_errors(words, [[], words[1:], [*words, "now"]]).tolist() == [6, 1, 1]
    assert word_errors([], [[], ["one", "two"]]).tolist() == [0, 2]
