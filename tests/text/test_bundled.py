"""The text inside Python: large enough, cleanly split, the same every time."""

from blackout.text.bundled import bundled_sentences, bundled_text
from blackout.text.corpus import count_words


def test_parts(tmp_path):
    paths = bundled_text(tmp_path / "a")
    counts = {part: count_words(path) for part, path in paths.items()}
    words = {part: c.tokens - c.sentences for part, c in counts.items()}
    total = sum(words.values())
    assert 60_000 < total < 200_000
    assert 0.75 < words["train"] / total < 0.85
    assert 0.07 < words["valid"] / total < 0.13
    assert 0.07 < words["test"] / total < 0.13
    lines = [line for path in paths.values() for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(bundled_sentences())
    assert len(set(lines)) == len(lines)  # nothing held out was seen in training
    again = bundled_text(tmp_path / "b")
    assert all(paths[part].read_bytes() == again[part].read_bytes() for part in paths)


def test_sentences_are_lower_case_words_and_single_marks():
    for sentence in bundled_sentences():
        assert sentence == sentence.lower()
        for word in sentence.split(" "):
            assert len(word) == 1 or word[0].isalnum() or word[0] == "_", word
