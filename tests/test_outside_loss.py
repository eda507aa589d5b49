"""An output layer from another package: every verb works with it, and its name is all we know.

It looks at the two words before the target, so it also shows that histories reach it everywhere.
"""

import json
import math
import sys

import pytest
import torch

import blackout
from blackout import losses
from blackout.cli.main import main
from blackout.config import Config
from blackout.errors import UserError
from blackout.text.vocab import EOS

LAYER = '''
import torch
from blackout.losses import Loss
from blackout.output import OutputLayer
from blackout.tables import Table

LOSS = Loss(
    "pairs", "softmax with pairs", "outside_layers:Pairs", (), lambda loss, v: v, lambda loss, v: v
)
NUMBERS = 997


class Pairs(OutputLayer):
    """u_w = <theta_w, s> + D[hash of the last two words and w]."""

    history_words = 2

    def __init__(self, in_features, n_classes, *, bias, init_range, precision, storage, impl):
        super().__init__(in_features, n_classes)
        self.table = Table(n_classes, in_features, init_range=init_range, sparse=False, impl=impl)
        self.pairs = Table(NUMBERS, None, init_range=0.5, sparse=False, impl=impl)

    def all_log_probs(self, hidden, history):
        words = torch.arange(self.n_classes, device=hidden.device)
        place = (history[:, :1] * 31 + history[:, 1:] * 7 + words) % NUMBERS
        return (hidden @ self.table.weight.mT + self.pairs.weight[place]).log_softmax(-1)

    def objective(self, hidden, target, mask=None, history=None):
        hidden, history = hidden.reshape(-1, self.in_features), history.reshape(-1, 2)
        found = self.all_log_probs(hidden, history).gather(1, target.reshape(-1, 1))
        return found.view(target.shape)

    @torch.no_grad()
    def target_log_prob(self, hidden, target, history=None):
        return self.objective(hidden, target, None, history)

    def log_prob_tiles(self, hidden, history=None):
        logs = self.all_log_probs(hidden, history)
        for first in range(0, self.n_classes, 5):
            yield first, logs[:, first : first + 5]
'''


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A package that is installed as pip would leave it."""
    site = tmp_path_factory.mktemp("site")
    (site / "outside_layers.py").write_text(LAYER)
    about = site / "outside_layers-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-layers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[blackout.losses]\npairs = outside_layers:LOSS\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(site))  # for the processes of `tune`
        losses._installed.cache_clear()
        yield site
    losses._installed.cache_clear()
    losses._LOSSES.pop("pairs", None)
    sys.modules.pop("outside_layers", None)


@pytest.fixture(scope="module")
def run(lab, outside):
    out = lab.folder / "outside-run"
    assert main(lab.options(out, loss="pairs", epochs=2)) == 0
    return out


@pytest.fixture
def result(capsys):
    def call(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def by_hand(model, sentence):
    """Log-probabilities of a sentence's words and its end, one word after another."""
    words = [EOS, *model.vocab.ids(sentence.split()), EOS]
    state, logs = model.initial_state(1), []
    for i, target in enumerate(words[1:], 1):
        hidden, state = model(torch.tensor([[words[i - 1]]]), state)
        last, before = words[i - 1], words[i - 2] if i > 1 else EOS
        history = torch.tensor([[last, before]])
        logs.append(float(model.output.all_log_probs(hidden[0], history)[0, target].detach()))
    return logs


def test_train_and_eval(lab, run, result, tmp_path):
    assert losses.names()[-1] == "pairs"
    dump = tmp_path / "probs.txt"
    values = result("eval", run, lab.text("test"), "--probs", dump)
    assert math.isfinite(values["perplexity"])
    model = blackout.load(run)
    expected = [
        x for line in lab.text("test").read_text().splitlines() for x in by_hand(model, line)
    ]
    found = [float(line.split("\t")[1]) * math.log(10) for line in dump.read_text().splitlines()]
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_resumed_run_is_the_same(lab, outside, tmp_path):
    """The words before the block are part of the state."""
    for context in ("sentence", "stream"):
        options = {"loss": "pairs", "context": context, "checkpoint_minutes": 1e-9}
        straight, halves = tmp_path / f"{context}-a", tmp_path / f"{context}-b"
        lab.train(straight, epochs=2, **options)
        lab.train(halves, epochs=1, **options)
        lab.train(halves, epochs=2, resume=True, **options)
        assert lab.differing(lab.final(straight), lab.final(halves)) == []
        assert lab.final(straight)["state.words"].shape == (1, 4)


def test_mix_and_rescore(lab, run, result, tmp_path):
    arpa = tmp_path / "m.arpa"
    result("ngram", "train", "--train", lab.text("train"), "--out", arpa, "--order", 2)
    values = result("mix", run, arpa, "--tune", lab.text("valid"), "--test", lab.text("test"))
    alone = result("eval", run, lab.text("test"))
    assert values["model_perplexity"] == pytest.approx(alone["perplexity"], rel=1e-5)

    texts = ["the cat sees the dog", "the cat sees a bird", "a old house"]
    lists, out = tmp_path / "lists.jsonl", tmp_path / "out.jsonl"
    hyps = [{"text": text, "am": 0.0, "lm": 0.0} for text in texts]
    lists.write_text(json.dumps({"utt": "u", "hyps": hyps}) + "\n")
    result("rescore", run, lists, "--format", "jsonl", "--out", out)
    model = blackout.load(run)
    scores = {hyp["text"]: hyp["lm"] for hyp in json.loads(out.read_text())["hyps"]}
    for text in texts:
        assert scores[text] == pytest.approx(sum(by_hand(model, text)), abs=1e-3)
    result("rescore", run, lists, "--format", "jsonl", "--out", out, "--ngram", arpa)


def test_generate(run, result):
    text = result("generate", run, "--prompt", "the cat", "--words", 6, "--temperature", 0)["text"]
    model = blackout.load(run)
    words = [EOS, *model.vocab.ids(["the", "cat"])]
    state = model.initial_state(1)
    for word in words[:-1]:
        _, _, state = model.read_word(torch.tensor([word]), state)
    for _ in range(3):
        hidden, history, state = model.read_word(torch.tensor(words[-1:]), state)
        best = model.output.topk(hidden, 3, history=history).indices[0].tolist()
        words.append(next(word for word in best if word != 1))  # never <unk>
    shown = " ".join("\n" if word == EOS else model.vocab.word(word) for word in words[1:])
    assert " ".join(text.split()).startswith(" ".join(shown.split()))


def test_tune_and_bench_and_report(lab, run, result, tmp_path):
    options = lab.options(tmp_path / "tune", loss="pairs", epochs=1)[1:]
    values = result("tune", *options, "--grid", "lr=0.02,0.001", "--workers", 1)
    assert len(values["trials"]) == 2
    small = [
        "--vocab-size",
        50,
        "--hidden",
        8,
        "--seconds",
        0.05,
        "--threads",
        1,
        "--loss",
        "pairs",
    ]
    speed = result("bench", "train", *small, "--batch", 4, "--bptt", 3)
    assert speed["flops_per_word"] == 6 * (8 * 8 + 50 * 8)
    assert result("bench", "eval", *small, "--words", 64)["flops_per_word"] == 2 * 8 * (50 + 8)
    assert "softmax with pairs" in (run / "report.html").read_text()


def test_a_setting_that_it_does_not_look_at_cannot_be_tuned(lab, outside, tmp_path, capsys):
    options = lab.options(tmp_path / "tune", loss="pairs")[1:]
    assert main(["tune", *options, "--grid", "alpha=0,1"]) == 1
    assert "alpha has no effect with loss pairs" in capsys.readouterr().err


def test_a_model_can_name_a_loss_but_not_bring_it():
    with pytest.raises(UserError, match=r"loss is 'evil:Layer', must be one of blackout, nce, sam"):
        Config.from_dict({"loss": {"loss": "evil:Layer"}})


def test_a_program_registers_its_own():
    mine = losses.Loss("mine", "my loss", "nowhere:Mine", (), lambda *_: 1, lambda *_: 1)
    losses.register(mine)
    try:
        assert Config.from_dict({"loss": {"loss": "mine"}}).loss.loss == "mine"
        with pytest.raises(UserError, match="there is a loss named 'mine' already"):
            losses.register(mine)
    finally:
        del losses._LOSSES["mine"]
