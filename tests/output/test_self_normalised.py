"""The self-normalised softmax: J = log p_i - gamma (log Z)², over samples and over all classes."""

import json
import math

import pytest
import torch

import blackout
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.output import NCE, BlackOut, SelfNormalised, SelfNormalisedFull

V, H, K, GAMMA = 11, 4, 6, 0.3


def given():
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, 3, H, dtype=torch.float64, generator=generator)
    return hidden.requires_grad_(), torch.tensor([[1, 4, 4], [0, 10, 7]])


def over_all(layer, hidden, target):
    logits = hidden @ layer.weight.mT + layer.bias
    log_z = logits.logsumexp(-1)
    return logits.gather(-1, target[..., None])[..., 0] - log_z - GAMMA * log_z.square()


def over_samples(layer, hidden, target, drawn):
    """By the definition: Ẑ = exp(u_i) + 1/K sum over j ≠ i of exp(u_j) / Q_j."""
    logits = hidden @ layer.weight.mT + layer.bias
    u = logits.gather(-1, target[..., None])[..., 0]
    some = torch.stack([row[:, s] for row, s in zip(logits, drawn.samples, strict=True)])
    z = some - drawn.log_q_samples[:, None]
    line_up = torch.cat([(u - drawn.log_q_target)[..., None], z], -1)
    others = z.masked_fill(drawn.samples[:, None] == target[..., None], -math.inf)
    log_z = torch.logaddexp(u, others.logsumexp(-1) - math.log(K))
    return line_up.log_softmax(-1)[..., 0] - GAMMA * log_z.square()


def gradients(value, *of):
    return [g.to_dense() for g in torch.autograd.grad(value.sum(), of)]


def test_over_all_classes():
    layer = SelfNormalisedFull(H, V, gamma=GAMMA, bias=True, dtype=torch.float64)
    hidden, target = given()
    found, expected = layer(hidden, target).output, over_all(layer, hidden, target)
    torch.testing.assert_close(found, expected)
    of = (hidden, layer.weight, layer.bias)
    for ours, truth in zip(gradients(found, *of), gradients(expected, *of), strict=True):
        torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_over_samples(alpha):
    """Against the definition and autograd, where the target is among its samples too."""
    counts = torch.tensor([40, 1, 1, 1, 90, 1, 1, 1, 1, 1, 1])
    options = {"gamma": GAMMA, "counts": counts, "alpha": alpha, "sharing": "step"}
    layer = SelfNormalised(H, V, K, bias=True, dtype=torch.float64, **options)
    hidden, target = given()
    drawn = layer.draw(target)
    assert bool((drawn.samples[0] == 4).any())
    found = layer(hidden, target, samples=drawn).output
    expected = over_samples(layer, hidden, target, drawn)
    torch.testing.assert_close(found, expected)
    of = (hidden, layer.weight, layer.bias)
    for ours, truth in zip(gradients(found, *of), gradients(expected, *of), strict=True):
        torch.testing.assert_close(ours, truth)


def test_merged_copies_change_nothing():
    layer = SelfNormalised(H, V, 200, counts=torch.arange(1, V + 1), dtype=torch.float64)
    assert layer.merges
    hidden, target = given()
    drawn = layer.draw(target)
    layer.step.zero_()
    merged = layer(hidden, target).output
    torch.testing.assert_close(merged, layer(hidden, target, samples=drawn).output)


def test_nothing_overflows():
    layer = SelfNormalised(H, V, K)
    with torch.no_grad():
        layer.weight.mul_(1e4)
    hidden, target = torch.randn(3, H, requires_grad=True), torch.tensor([1, 2, 3])
    layer(hidden, target).loss.backward()
    assert bool(hidden.grad.isfinite().all())


def test_training_draws_log_z_to_nothing():
    """A bigram model learnt from samples: its logits are log-probabilities of it."""
    torch.manual_seed(1)
    states = torch.eye(H)
    truth = torch.distributions.Dirichlet(torch.ones(V)).sample((H,))
    layer = SelfNormalised(H, V, 8, gamma=0.1)
    optimizer = blackout.RMSProp(layer.parameters(), lr=0.02, by_width=False)
    for step in range(1500):
        for group in optimizer.param_groups:
            group["lr"] = 0.03 * (1 - step / 1500)
        which = torch.randint(H, (64,))
        target = torch.multinomial(truth[which], 1)[:, 0]
        optimizer.zero_grad()
        layer(states[which], target).loss.backward()
        optimizer.step()
    log_z = layer.logits(states).logsumexp(1).detach()
    assert log_z.abs().max() < 0.25  # it began at log 11 = 2.4
    words = torch.arange(H)
    exact = layer.target_log_prob(states, words)
    quick = layer.unnormalised_log_prob(states, None, words)
    torch.testing.assert_close(quick - exact, log_z)


def test_nce_scores_are_off_by_log_z_less_its_own():
    layer = NCE(H, V, K, log_z=1.5)
    hidden, target = torch.randn(3, H), torch.tensor([1, 2, 3])
    row = torch.tensor([2, 0])
    quick = layer.unnormalised_log_prob(hidden, row, target[:2])
    exact = layer.pair_log_prob(hidden, row, target[:2])
    log_z = layer.logits(hidden).logsumexp(1).detach()
    torch.testing.assert_close(quick - exact, log_z[row] - 1.5)


def test_bad_input():
    hidden, target = torch.randn(3, H), torch.tensor([1, 2, 3])
    with pytest.raises(UserError, match="gamma is -1, must be 0 or more"):
        SelfNormalised(H, V, K, gamma=-1)
    with pytest.raises(UserError, match="BlackOut does not normalise itself"):
        BlackOut(H, V, K).unnormalised_log_prob(hidden, None, target)
    with pytest.raises(UserError, match="several classes an example"):
        SelfNormalised(H, V, K)(hidden, target[:, None])


@pytest.fixture(scope="module")
def runs(lab):
    found = {}
    for loss in ("self-normalised", "nce", "blackout"):
        found[loss] = lab.folder / f"own-{loss}"
        assert main(lab.options(found[loss], loss=loss, epochs=1)) == 0
    return found


@pytest.mark.parametrize("loss", ["self-normalised", "nce"])
def test_eval_and_rescore_without_the_sum(lab, runs, loss, tmp_path, capsys):
    def result(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    plain = result("eval", runs[loss], lab.text("test"))
    values = result("eval", runs[loss], lab.text("test"), "--unnormalised")
    assert values["perplexity"] == pytest.approx(plain["perplexity"], rel=1e-6)
    ratio = values["perplexity"] / values["unnormalised_perplexity"]
    assert math.log(ratio) == pytest.approx(values["log_z_mean"], abs=1e-5)
    assert values["log_z_spread"] > 0

    lists, out = tmp_path / "lists.jsonl", tmp_path / "out.jsonl"
    text = "the cat sees the dog"
    lists.write_text(
        json.dumps({"utt": "u", "hyps": [{"text": text, "am": 0.0, "lm": 0.0}]}) + "\n"
    )
    common = ["rescore", runs[loss], lists, "--format", "jsonl", "--out", out]
    result(*common)
    exact = json.loads(out.read_text())["hyps"][0]["lm"]
    errors = result(*common, "--unnormalised")
    quick = json.loads(out.read_text())["hyps"][0]["lm"]
    assert errors["log_z_words"] == 6
    assert quick - exact == pytest.approx(6 * errors["log_z_mean"], abs=1e-4)


def test_refused_in_one_line(lab, runs, tmp_path, capsys):
    assert main(["eval", str(runs["blackout"]), str(lab.text("test")), "--unnormalised"]) == 1
    said = capsys.readouterr().err
    assert "BlackOut does not normalise itself" in said
    assert len(said.splitlines()) == 1
    lists = tmp_path / "lists.jsonl"
    lists.write_text("")
    mixed = ["--unnormalised", "--ngram", "x.arpa"]
    assert main(["rescore", str(runs["nce"]), str(lists), *mixed]) == 1
    assert "a mixture with --ngram needs probabilities" in capsys.readouterr().err
