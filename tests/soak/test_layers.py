"""Every output layer with any options: one distribution, one gradient, on every engine."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from blackout import losses
from blackout.config import LossConfig
from blackout.errors import UserError
from blackout.output import FlatSoftmax, LayerSpec, OutputLayer

NUMBERS = settings.get_profile("numbers")


class Case(NamedTuple):
    """A layer's settings, and what it is given."""

    loss: str
    options: LossConfig
    common: dict[str, Any]
    counts: Tensor
    hidden: Tensor
    target: Tensor
    history_seed: int

    def layer(self, impl: str, dtype: torch.dtype = torch.float32) -> OutputLayer:
        torch.manual_seed(3)
        loss = losses.find(self.loss)
        chosen = {name: getattr(self.options, name) for name in loss.options}
        if "always_sample" in chosen:
            chosen["always_sample"] = tuple(1 for _ in chosen["always_sample"])
        if "sampling" in chosen:
            chosen["sampling"] = chosen["sampling"] or "global"
        size = self.hidden.shape[-1]
        spec = LayerSpec(size, self.counts, 5, chosen, {**self.common, "impl": impl})
        try:
            layer = loss.layer().from_spec(spec)
        except UserError:
            assume(False)
        generator = torch.Generator().manual_seed(8)
        text = torch.randint(len(self.counts), (50,), generator=generator)
        layer.read_text(text[:-1], text[1:])
        for name, parameter in layer.named_parameters():
            if name.startswith("biases"):
                torch.nn.init.normal_(parameter, generator=generator)
        return layer.to(dtype)

    def history(self, layer: OutputLayer) -> Tensor | None:
        if not layer.history_words:
            return None
        generator = torch.Generator().manual_seed(self.history_seed)
        shape = (*self.hidden.shape[:-1], layer.history_words)
        return torch.randint(len(self.counts), shape, generator=generator)


@st.composite
def cases(draw: Any, loss_settings: Any) -> Case:
    try:
        options = LossConfig(**draw(loss_settings))
    except UserError:  # not all go together
        assume(False)
    classes, size = draw(st.integers(3, 40)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = draw(st.sampled_from([(1,), (5,), (3, 2), (2, 4)]))
    counts = torch.randint(1, 50, (classes,), generator=generator)
    common = {"bias": draw(st.booleans()), "init_range": draw(st.sampled_from([0.1, 1.0]))}
    if issubclass(losses.find(options.loss).layer(), FlatSoftmax) and draw(st.booleans()):
        common |= {"normalize": draw(st.booleans()), "temperature": draw(st.sampled_from([0.1, 2]))}
    return Case(
        options.loss,
        options,
        common,
        counts,
        draw(st.sampled_from([0.1, 1.0, 10.0])) * torch.randn(*shape, size, generator=generator),
        torch.randint(classes, shape, generator=generator),
        draw(st.integers(0, 100)),
    )


def trained(case: Case, layer: OutputLayer, hidden: Tensor) -> list[Tensor]:
    """Objectives, and the gradients of the loss by states and parameters."""
    states = hidden.clone().requires_grad_()
    output, loss = layer(states, case.target, None, case.history(layer))
    loss.backward()
    found = [p.grad for p in layer.parameters() if p.grad is not None]
    return [output.detach(), states.grad, *(g.to_dense() for g in found)]


@NUMBERS
@given(data=st.data())
def test_one_distribution_whoever_is_asked(data: Any, drawn: Any) -> None:
    """Probabilities sum to one, and every method means the same ones."""
    case = data.draw(cases(drawn.loss))
    layer = case.layer("auto").eval()
    past = case.history(layer)
    logs = layer.log_prob(case.hidden, history=past).detach()
    assert float((logs.double().exp().sum(-1) - 1).abs().max()) < 1e-5
    close = {"rtol": 1e-4, "atol": 1e-4}
    own = logs.gather(-1, case.target[..., None])[..., 0]
    torch.testing.assert_close(layer.target_log_prob(case.hidden, case.target, past), own, **close)
    exact = layer(case.hidden, case.target, None, past).output.detach()
    torch.testing.assert_close(exact, own, **close)
    best = layer.topk(case.hidden, 3, history=past)
    torch.testing.assert_close(best.values, logs.topk(3).values, **close)
    torch.testing.assert_close(best.values, logs.gather(-1, best.indices), **close)
    some = torch.tensor([2, 0])
    asked = layer.log_prob(case.hidden, some, history=past).detach()
    torch.testing.assert_close(asked, logs[..., some], **close)


@NUMBERS
@given(data=st.data())
def test_engines_agree(data: Any, drawn: Any) -> None:
    """Native code in float32 is the reference in float64, to rounding."""
    case = data.draw(cases(drawn.loss))
    ours = trained(case, case.layer("native"), case.hidden)
    theirs = trained(case, case.layer("reference", torch.float64), case.hidden.double())
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        least = max(2e-4 * float(b.abs().max()), 2e-7, 1e-6 * largest_part(case))
        torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=least)


def largest_part(case: Case) -> float:
    """How large a part of a gradient can be, of which others may leave nothing.

    A target that is its own sample adds and takes away a row of |h| / temperature; what a cosine
    does not depend on cancels in the derivative by the state, which is divided by |h|.
    """
    lengths = case.hidden.norm(dim=-1)
    largest = max(float(lengths.max()), 1.0)
    if case.common.get("normalize"):
        largest = max(largest, 200.0, 1 / float(lengths.min()))
    return largest / float(case.common.get("temperature", 1.0))


@NUMBERS
@given(data=st.data())
def test_gradients_are_those_of_finite_differences(data: Any, drawn: Any) -> None:
    case = data.draw(cases(drawn.loss))
    hidden = case.hidden.double()
    _, gradient, *_ = trained(case, case.layer("reference", torch.float64), hidden)
    generator = torch.Generator().manual_seed(2)
    direction = torch.randn(hidden.shape, generator=generator, dtype=torch.float64)
    direction *= 1e-5 * (1 + hidden.norm()) / direction.norm()
    ends = []
    for states in (hidden + direction, hidden - direction):
        layer = case.layer("reference", torch.float64)  # a new one: some learn while looking back
        with torch.no_grad():
            ends.append(float(layer(states, case.target, None, case.history(layer)).loss))
    slope = float((gradient * direction).sum())
    scale = max(abs(ends[0]), float(gradient.norm() * direction.norm()))
    assert ends[0] - ends[1] == pytest.approx(2 * slope, rel=1e-3, abs=1e-8 * scale + 1e-12)


@NUMBERS
@given(data=st.data(), size=st.sampled_from([1e2, 1e4]))
@pytest.mark.parametrize("impl", ["native", "reference"])
def test_large_logits_are_finite(impl: str, data: Any, size: float, drawn: Any) -> None:
    """Up to ± 1e4, in losses, gradients and log-probabilities."""
    case = data.draw(cases(drawn.loss))
    layer = case.layer(impl)
    tables = [*layer.parameters(), *layer.buffers()]  # one learns by itself, without parameters
    longest = max(float(p.detach().abs().max()) for p in tables if p.ndim > 1)
    hidden = case.hidden * (size / (longest * float(case.hidden.abs().max())))
    for part in trained(case, layer, hidden):
        assert bool(part.isfinite().all())
    logs = layer.eval().log_prob(hidden, history=case.history(layer))
    assert bool((logs <= 1e-3).all())
    assert not bool(logs.isnan().any())
    exact = layer(hidden, case.target, None, case.history(layer)).loss.detach()
    assert math.isfinite(float(exact))
