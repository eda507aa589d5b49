"""Models of the paper's own program: the same probabilities after conversion, or a refusal."""

import itertools
import math

import numpy as np
import pytest

import blackout
from blackout.errors import UserError
from blackout.models.convert import OOV_WORD, convert_rnnlm
from blackout.score.perplexity import evaluate, log_probabilities
from blackout.text.corpus import encode_file

WORDS = ["</s>", "zebra", "the", "cat", "sat", "über"]  # and the unlisted unknown word
HIDDEN = 4
TEXT = "the cat sat\nzebra zebra new über\nthe\nother cat\n"


def weights(vocab_size):
    rng = np.random.default_rng(0)
    tables = {"Win": vocab_size, "Wout": vocab_size, "Wr": HIDDEN}
    return {name: rng.normal(0, 1.5, (rows, HIDDEN)) for name, rows in tables.items()}


def block(name, rows):
    lines = ["".join(f"{value:.6g} " for value in row) for row in rows]
    return [f"{name}:", *lines]


def model_lines(words=WORDS, tables=None):
    """The lines of a model file as the program writes it."""
    tables = tables or weights(len(words) + 1)
    size = len(words) + 1
    lines = [
        f"input layer size: {size}",
        f"hidden layer size: {HIDDEN}",
        f"output layer size: {size}",
        f"vocabulary size (including </s> and <unk>): {size}",
        "",
        "Vocabulary:",
        *(f"{i:>10}\t{word}" for i, word in enumerate(words)),
    ]
    for name, rows in tables.items():
        lines += ["", *block(name, rows)]
    for name, rows in tables.items():
        lines += ["", *block(f"RmsProps-{name}", rows**2)]
    return lines


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def expected_log_probs(tables, words, text, unknown):
    """The program's evaluation in float64, one word after another, without its floor."""
    rounded = {
        name: np.array([[float(f"{value:.6g}") for value in row] for row in rows])
        for name, rows in tables.items()
    }
    number = {word: i for i, word in enumerate(words)}
    logs = []
    for line in text.splitlines():
        ids = [0, *(number.get(word, unknown) for word in line.split()), 0]
        state = None
        for word, target in itertools.pairwise(ids):
            total = rounded["Win"][word].copy()
            if state is not None:
                total += rounded["Wr"] @ state
            state = 1 / (1 + np.exp(-total))
            logits = rounded["Wout"] @ state
            logs.append(logits[target] - np.log(np.exp(logits).sum()))
    return np.array(logs)


def converted_log_probs(folder, text):
    model = blackout.load(folder)
    (folder.parent / "text").write_text(text)
    shard = encode_file(folder.parent / "text", model.vocab, None, folder.parent / "text.shard")
    return np.concatenate([logs for _, logs in log_probabilities(model, shard)]), model, shard


def test_probabilities_are_the_programs(tmp_path):
    tables = weights(len(WORDS) + 1)
    done = convert_rnnlm(write(tmp_path / "model", model_lines(tables=tables)), tmp_path / "out")
    assert (done.vocab_size, done.hidden, done.literal_unk) == (7, HIDDEN, False)
    assert done.parameters == 2 * 7 * HIDDEN + HIDDEN**2
    logs, model, shard = converted_log_probs(tmp_path / "out", TEXT)
    expected = expected_log_probs(tables, WORDS, TEXT, unknown=len(WORDS))
    assert logs == pytest.approx(expected, abs=2e-6)
    assert shard.unknown == 2
    result = evaluate(model, shard)
    assert result.perplexity == pytest.approx(math.exp(-expected.mean()), rel=1e-6)


def test_counts_come_from_the_training_text(tmp_path):
    path = write(tmp_path / "model", model_lines())
    (tmp_path / "train").write_text(TEXT * 3)
    convert_rnnlm(path, tmp_path / "plain")
    convert_rnnlm(path, tmp_path / "counted", train=tmp_path / "train")
    plain, counted = (blackout.load(tmp_path / name) for name in ("plain", "counted"))
    assert set(plain.vocab.counts.tolist()) == {1}
    found = dict(zip(counted.vocab.words, counted.vocab.counts.tolist(), strict=True))
    assert found == {
        "</s>": 12, "<unk>": 6, "the": 6, "cat": 6, "zebra": 6, "sat": 3, "über": 3,
    }  # fmt: skip
    first, _, _ = converted_log_probs(tmp_path / "plain", TEXT)
    second, _, _ = converted_log_probs(tmp_path / "counted", TEXT)
    assert first == pytest.approx(second, abs=1e-6)


def test_a_literal_unknown_word_in_the_programs_text(tmp_path):
    """It is a word like others there, beside the program's own unknown word."""
    words = ["</s>", "the", "<unk>", "cat"]
    tables = weights(5)
    path = write(tmp_path / "model", model_lines(words, tables))
    assert convert_rnnlm(path, tmp_path / "out").literal_unk
    text = "the <unk> cat\n<unk>\n"
    logs, model, _ = converted_log_probs(tmp_path / "out", text)
    assert logs == pytest.approx(expected_log_probs(tables, words, text, 4), abs=2e-6)
    assert OOV_WORD in model.vocab.words


def test_numbers_of_words_may_stand_in_any_order(tmp_path):
    """The program writes the words in the order of its hash table."""
    lines = model_lines()
    lines[7:10] = lines[9:6:-1]
    for name, content in (("plain", model_lines()), ("turned", lines)):
        convert_rnnlm(write(tmp_path / name, content), tmp_path / f"{name}-out")
    first, _, _ = converted_log_probs(tmp_path / "plain-out", TEXT)
    second, _, _ = converted_log_probs(tmp_path / "turned-out", TEXT)
    assert (first == second).all()


def replaced(line, text):
    def change(lines):
        lines[line - 1] = text
        return lines

    return change


def removed(line):
    return lambda lines: lines[: line - 1] + lines[line:]


WIN = 14  # the line of its name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(1, "hello"), "line 1: is not .input layer size: number.: not a model file"),
        (replaced(2, "hidden layer size: many"), "line 2: is not .hidden layer size"),
        (replaced(2, "hidden layer size: 0"), "the hidden layer has no units"),
        (replaced(2, "hidden layer size: 99999"), "line 4: the file is too small"),
        (replaced(3, "output layer size: 6"), "line 4: the output layer has 6 words"),
        (replaced(6, "Words:"), "line 6: the block Vocabulary: should begin here, not 'Words:'"),
        (replaced(7, "         0\tthe"), "line 7: </s> and nothing else must have number 0"),
        (replaced(8, "         9\tx"), "line 8: number 9, but only 0 to 5 have a word"),
        (replaced(9, "         1\tx"), "line 9: number 1 stands there twice"),
        (replaced(9, "         2\tzebra"), "line 9: the word 'zebra' stands there twice"),
        (replaced(9, "         2 the"), "line 9: is not a number, a tab and a word"),
        (removed(10), "line 12: is not a number, a tab and a word"),
        (replaced(WIN, "Wout:"), "line 14: the block Win: should begin here, not 'Wout:'"),
        (replaced(WIN - 1, "x"), "line 13: the block Win: should begin here, not 'x'"),
        (replaced(WIN + 2, "1 2 3"), "line 16: 3 numbers instead of 4 in row 2 of 7"),
        (replaced(WIN + 2, "1 2 3 4 5"), "line 16: 5 numbers instead of 4"),
        (replaced(WIN + 2, "1 2 x 4"), "line 16: 'x' is not a number"),
        (replaced(WIN + 2, "1 2 1_0 4"), "line 16: '1_0' is not a number"),
        (replaced(WIN + 2, "1 2 nan 4"), "line 16: 'nan' is no weight"),
        (replaced(WIN + 2, "1 2 1e39 4"), "line 16: '1e39' is no weight"),
        (removed(WIN + 3), "line 21: 0 numbers instead of 4 in row 7"),
        (lambda lines: lines[:29], "ends after line 29: row 7 of 7 of the block Wout: is missing"),
        (lambda lines: lines[:37], "ends after line 37: the block RmsProps-Win: is missing"),
        (lambda lines: [*lines, "", "more"], "nothing should follow the last block, not 'more"),
        (replaced(WIN + 25, "-1 0 0 0"), "line 39: a second moment below 0"),
    ],
)
def test_anything_else_is_refused(tmp_path, change, message):
    path = write(tmp_path / "model", change(model_lines()))
    with pytest.raises(UserError, match=message) as error:
        convert_rnnlm(path, tmp_path / "out")
    assert str(error.value).startswith(f"{path}: ")
    assert not (tmp_path / "out").exists()


def test_a_file_cut_off_inside_a_line(tmp_path):
    whole = write(tmp_path / "model", model_lines()).read_bytes()
    for size in range(10, len(whole) - 1, 97):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"cut: (line \d+: |ends after line \d+: )"):
            convert_rnnlm(tmp_path / "cut", tmp_path / "out")
    with pytest.raises(UserError, match="nowhere: cannot be read"):
        convert_rnnlm(tmp_path / "nowhere", tmp_path / "out")


def test_a_folder_that_is_there_is_not_overwritten(tmp_path):
    path = write(tmp_path / "model", model_lines())
    (tmp_path / "out").mkdir()
    convert_rnnlm(path, tmp_path / "out")
    with pytest.raises(UserError, match="out: is there already"):
        convert_rnnlm(path, tmp_path / "out")


def test_the_verb(tmp_path, capsys):
    from blackout.cli.main import main

    path = write(tmp_path / "model", model_lines())
    (tmp_path / "text").write_text(TEXT)
    assert main(["convert-rnnlm", str(path), str(tmp_path / "out"), "--json"]) == 0
    assert '"vocab_size": 7' in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "out"), str(tmp_path / "text")]) == 0
    path.write_text("no model\n")
    capsys.readouterr()
    assert main(["convert-rnnlm", str(path), str(tmp_path / "other")]) == 1
    assert "line 1" in capsys.readouterr().err
