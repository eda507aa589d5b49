"""``blackout mix``: what it prints, what it writes, what it refuses."""

import json

import pytest

from blackout.cli.main import main

MORE = "zebra the\nthe lion sees a zebra\n"


@pytest.fixture(scope="module")
def models(lab):
    """A network with a shortlist, and an n-gram over more words."""
    out = lab.folder / "mix-run"
    assert main([*lab.options(out, vocab_size=10)]) == 0
    (lab.folder / "more.txt").write_text(lab.text("train").read_text() + MORE)
    arpa = lab.folder / "mix.arpa"
    line = ["ngram", "train", "--train", lab.folder / "more.txt", "--out", arpa, "--order", 3]
    assert main([str(word) for word in line]) == 0
    return out, arpa


@pytest.fixture
def result(capsys):
    def call(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert len(said.out.splitlines()) == 1
        return json.loads(said.out)

    return call


@pytest.fixture
def texts(lab):
    return ["--tune", lab.text("valid"), "--test", lab.text("test")]


def test_a_network_and_an_ngram(models, lab, texts, result):
    network, arpa = models
    values = result("mix", network, arpa, *texts)
    assert {
        "weight", "weights", "perplexity", "perplexity_without_unk", "model_perplexity",
        "ngram_perplexity", "iterations", "words", "unknown", "report",
    } <= values.keys()  # fmt: skip
    assert values["weights"] == [values["weight"], pytest.approx(1 - values["weight"])]
    alone = result("ngram", "eval", arpa, lab.text("test"))
    assert values["ngram_perplexity"] == pytest.approx(alone["perplexity"], rel=1e-6)
    assert (values["words"], values["unknown"]) == (alone["words"], alone["unknown"])
    # the network has to say which of the words outside its shortlist it is
    shortlist = result("eval", network, lab.text("test"))
    assert shortlist["unknown"] > 0
    assert values["model_perplexity"] > shortlist["perplexity"]
    page = (network / "mix.html").read_text()
    assert values["report"] == str(network / "mix.html")
    assert f"λ = {values['weight']:.3f}" in page
    assert f"{values['perplexity']:.2f}" in page


def test_the_weight_comes_from_the_tuning_text_alone(models, lab, tmp_path, result):
    network, arpa = models
    tune = ["--tune", lab.text("valid")]
    first = result("mix", network, arpa, *tune, "--test", lab.text("test"))
    second = result("mix", network, arpa, *tune, "--test", lab.text("train"))
    assert first["weights"] == second["weights"]
    assert first["iterations"] == second["iterations"] > 0
    assert first["perplexity"] != second["perplexity"]
    # and it is the best one there: tuned and tested on one text, it beats its neighbours
    best = result("mix", network, arpa, *tune, "--test", lab.text("valid"))
    for weight in (best["weight"] - 0.05, (best["weight"] + 1) / 2):
        given = ["--weights", weight, 1 - weight]
        near = result("mix", network, arpa, "--test", lab.text("valid"), *given)
        assert near["perplexity"] > best["perplexity"]
        assert near["iterations"] == 0


def test_other_orders_and_more_models(models, lab, texts, tmp_path, result):
    network, arpa = models
    one = result("mix", network, arpa, *texts)
    other = result("mix", arpa, network, *texts, "--report", tmp_path / "page.html")
    assert other["weights"] == pytest.approx(one["weights"][::-1], abs=1e-6)
    assert other["model_perplexity"] == pytest.approx(one["model_perplexity"])
    assert (tmp_path / "page.html").is_file()
    three = result("mix", network, arpa, network, *texts)
    assert sum(three["weights"]) == pytest.approx(1)
    assert three["perplexity"] == pytest.approx(one["perplexity"], rel=1e-6)
    assert [part["kind"] for part in three["components"]] == ["network", "n-gram", "network"]


def test_how_the_unknown_word_is_spread_matters(models, texts, result):
    network, arpa = models
    by = {how: result("mix", network, arpa, *texts, "--unknown", how) for how in
          ("unigram", "uniform")}  # fmt: skip
    assert by["unigram"]["model_perplexity"] != by["uniform"]["model_perplexity"]
    assert by["unigram"]["ngram_perplexity"] == by["uniform"]["ngram_perplexity"]


def test_dumps_stand_for_their_models(models, lab, texts, tmp_path, result):
    """Dumps over one vocabulary mix to what the models do."""
    _, arpa = models
    small = tmp_path / "two.arpa"
    train = ["--train", lab.folder / "more.txt", "--order", 2]
    result("ngram", "train", *train, "--out", small)
    whole = result("mix", arpa, small, *texts)
    for name, model in (("three", arpa), ("two", small)):
        for part, text in (("tune", "valid"), ("test", "test")):
            result("ngram", "eval", model, lab.text(text), "--probs", tmp_path / f"{name}.{part}")
    tune = ["--tune-probs", tmp_path / "three.tune", tmp_path / "two.tune"]
    test = ["--test-probs", tmp_path / "three.test", tmp_path / "two.test"]
    values = result("mix", *tune, *test)
    assert values["weights"] == pytest.approx(whole["weights"], abs=1e-4)
    assert values["perplexity"] == pytest.approx(whole["perplexity"], rel=1e-5)
    assert values["report"] is None
    beside = result("mix", arpa, *texts, "--tune-probs", tmp_path / "two.tune",
                    "--test-probs", tmp_path / "two.test")  # fmt: skip
    assert beside["perplexity"] == pytest.approx(whole["perplexity"], rel=1e-5)


def test_the_dump_of_the_mixture(models, lab, texts, tmp_path, result):
    network, arpa = models
    values = result("mix", network, arpa, *texts, "--probs", tmp_path / "probs")
    lines = [line.split("\t") for line in (tmp_path / "probs").read_text().splitlines()]
    assert len(lines) == values["words"] + values["sentence_ends"]
    mean = sum(float(value) for _, value in lines) / len(lines)
    assert 10**-mean == pytest.approx(values["perplexity"], rel=1e-6)


def test_empty_lines_are_read_as_in_training(models, lab, tmp_path, result):
    _, arpa = models
    (tmp_path / "text").write_text("the cat\n\na dog\n")
    out = tmp_path / "run"
    assert main([*lab.options(out), "--keep-empty"]) == 0
    texts = ["--tune", tmp_path / "text", "--test", tmp_path / "text"]
    assert result("mix", out, arpa, *texts)["sentence_ends"] == 3
    assert result("mix", out, arpa, *texts, "--no-keep-empty")["sentence_ends"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN"], "two or more"),
        (["RUN", "nowhere"], "nowhere: no such model folder or n-gram file"),
        (["RUN", "ARPA", "--test", "TEST"], "tune: the text to find the weights on is missing"),
        (["RUN", "ARPA", "--tune", "TEST"], "test: the text to report"),
        (["RUN", "ARPA", "--test", "TEST", "--weights", "0.5", "0.6"], "weights 0.5 0.6 must be"),
        (["RUN", "ARPA", "--test", "TEST", "--weights", "1"], "weights: 1 numbers for 2 models"),
        (["--tune-probs", "a", "b", "--test-probs", "a"], "2 tune-probs but 1 test-probs"),
        (["--tune-probs", "a", "b", "--test-probs", "a", "b"], "a: cannot be read"),
        (["RUN", "TEST", "--tune", "TEST", "--test", "TEST"], "test.txt: line 1"),
        (["RUN", "ARPA", "--tune", "nowhere", "--test", "TEST"], "nowhere: cannot be read"),
        (["RUN", "ARPA", "--tune", "TEST", "--test", "TEST", "--report", "no/x.html"], "no/x.html"),
        (["RUN", "ARPA", "--tune", "TEST", "--test", "TEST", "--probs", "no/x"], "no/x: cannot be"),
    ],
)
def test_what_cannot_be_mixed_is_refused(models, lab, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(lab.folder)
    names = {"RUN": str(models[0]), "ARPA": str(models[1]), "TEST": str(lab.text("test"))}
    line = [names.get(word, word) for word in arguments]
    capsys.readouterr()
    status = main(["mix", *line])
    said = capsys.readouterr().err.strip()
    assert (status, said.count("\n")) == (1, 0), said
    assert message in said
