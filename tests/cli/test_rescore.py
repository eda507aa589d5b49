"""``blackout rescore``: the verb from files to files."""

import json

import pytest

from blackout.cli.main import main
from blackout.rescore.formats import read_nbest

HYPS = {
    "u1": ["the cat sees the dog", "the cat sees a dog", "a cat sees the dog", "cat sees dog"],
    "u2": ["the bird", "a bird", "", "zebra bird"],
    "u3": ["the old house"],
}


@pytest.fixture(scope="module")
def run(lab):
    out = lab.folder / "rescore-run"
    if not out.exists():
        assert main(lab.options(out)) == 0
    return out


@pytest.fixture(scope="module")
def ngram(lab):
    path = lab.folder / "rescore.arpa"
    if not path.exists():
        assert main(["ngram", "train", "--train", str(lab.text("train")), "--order", "3",
                     "--out", str(path)]) == 0  # fmt: skip
    return path


@pytest.fixture
def lists(tmp_path):
    path = tmp_path / "lists.jsonl"
    with path.open("w") as file:
        for name, texts in HYPS.items():
            hyps = [{"text": t, "am": -10.0 - i, "lm": -5.0} for i, t in enumerate(texts)]
            file.write(json.dumps({"utt": name, "hyps": hyps}) + "\n")
    return path


@pytest.fixture
def rescore(run, lists, capsys):
    def call(*arguments, nbest=lists):
        capsys.readouterr()
        words = ["rescore", run, nbest, *arguments, "--threads", 1, "--device", "cpu", "--json"]
        assert main([str(word) for word in words]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def test_result_and_files(rescore, tmp_path):
    result = rescore("--out", tmp_path / "new.jsonl", "--best", tmp_path / "best")
    assert result["utterances"] == 3
    assert result["hypotheses"] == 9
    assert result["words"] == sum(len(t.split()) for texts in HYPS.values() for t in texts)
    assert result["unknown"] == 1
    ended = [(*t.split(), "</s>") for texts in HYPS.values() for t in texts]
    assert result["distinct"] == len({s[: i + 1] for s in ended for i in range(len(s))})
    assert "wer" not in result
    new = read_nbest(tmp_path / "new.jsonl")
    best = dict(line.partition(" ")[::2] for line in (tmp_path / "best").read_text().splitlines())
    for utterance in new.utterances:
        assert all(h.lm < 0 and h.lm != -5 for h in utterance.hypotheses)
        items = [h.extra["item"] for h in utterance.hypotheses]
        assert all(i["total"] == pytest.approx(i["am"] + i["lm"]) for i in items)
        assert best[utterance.name] == max(items, key=lambda i: i["total"])["text"]


def test_perplexity_and_rescoring_agree(rescore, run, tmp_path, capsys):
    """The new scores of the lists add up to the perplexity of their sentences as a text."""
    text = tmp_path / "text"
    text.write_text("".join(f"{t}\n" for texts in HYPS.values() for t in texts))
    rescore("--out", tmp_path / "new.jsonl")
    total = sum(h.lm for h in read_nbest(tmp_path / "new.jsonl").hypotheses)
    probs = tmp_path / "probs"
    assert main(["eval", str(run), str(text), "--keep-empty", "--probs", str(probs)]) == 0
    logs = [float(line.split("\t")[1]) for line in probs.read_text().splitlines()]
    assert total == pytest.approx(sum(logs) * 2.302585093, rel=1e-5)


def test_tuned_on_one_set_and_used_on_another(rescore, ngram, tmp_path):
    refs, weights = tmp_path / "refs", tmp_path / "weights.json"
    refs.write_text("u1 a cat sees the dog\nu2 a bird\nu3 the old house\n")
    tuned = rescore("--refs", refs, "--ngram", ngram, "--save-weights", weights)
    assert tuned["wer_oracle"] <= tuned["wer"] <= tuned["wer_before"]
    assert tuned["wer_listed"] == pytest.approx(2 / 10)
    assert tuned["wer_oracle"] == 0
    assert json.loads(weights.read_text()) == tuned["weights"]
    again = rescore("--refs", refs, "--ngram", ngram, "--no-tune", "--load-weights", weights)
    assert again["weights"] == tuned["weights"]
    assert again["wer"] == again["wer_before"] == tuned["wer"]
    other = rescore("--load-weights", weights, "--lm-weight", "7")
    assert other["weights"] == tuned["weights"] | {"lm_weight": 7}


def test_the_ngram_changes_the_scores(rescore, ngram, tmp_path):
    def scores(*arguments):
        rescore("--out", tmp_path / "new.jsonl", *arguments)
        return [h.lm for h in read_nbest(tmp_path / "new.jsonl").hypotheses]

    network, mixed = scores(), scores("--ngram", ngram, "--weight", "0.4")
    assert all(a != b for a, b in zip(network, mixed, strict=True))


def test_log_base(rescore, tmp_path):
    path = tmp_path / "u.nbest"
    path.write_text("-3 -1 2 the cat\n-4 -1 2 the dog\n")

    def lm(*arguments):
        rescore("--out", tmp_path / "out", *arguments, nbest=path)
        return [float(line.split()[1]) for line in (tmp_path / "out").read_text().splitlines()]

    assert lm("--log-base", "e") == pytest.approx([2.302585093 * x for x in lm()])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--weight", "2"], "weight is 2"),
        (["--lm-weight", "nan"], "lm_weight is nan"),
        (["--format", "srilm"], "lists.jsonl: line 1"),
        (["--format", "kaldi"], "lists.jsonl: line 2"),
        (["--format", "espnet"], "1best_recog"),
        (["--refs", "missing"], "missing"),
        (["--ngram", "missing"], "missing"),
        (["--load-weights", "missing"], "missing"),
        (["--am-scores", "missing", "--format", "jsonl"], "kaldi"),
        (["--out", "lists.jsonl"], "--out"),
        (["--best", "no/such/folder/best"], "best"),
    ],
)
def test_errors_are_one_line(run, lists, monkeypatch, capsys, arguments, named):
    monkeypatch.chdir(lists.parent)
    capsys.readouterr()
    before = lists.read_bytes()
    assert main(["rescore", str(run), "lists.jsonl", *arguments]) == 1
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("blackout rescore: ")
    assert "Error:" not in said.err
    assert named in said.err
    assert lists.read_bytes() == before


@pytest.mark.parametrize("missing", ["model", "lists"])
def test_missing_files(run, lists, capsys, missing):
    model = run if missing == "lists" else run / "none"
    nbest = lists if missing == "model" else lists.with_name("none")
    capsys.readouterr()
    assert main(["rescore", str(model), str(nbest)]) == 1
    assert "none: no such" in capsys.readouterr().err
