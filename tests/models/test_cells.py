"""Every network against its formulas, written out step by step in float64."""

import itertools

import numpy as np
import pytest
import torch

from blackout.config import Config
from blackout.models import build_model
from blackout.text.vocab import EOS

V, T, B, H = 11, 13, 3, 5
CELLS = ["sigmoid", "tanh", "relu", "lstm", "gru"]


def network(**model):
    config = Config.from_dict(
        {"model": {"hidden": H, "init_range": 0.9, **model}, "loss": {"loss": "full"}}
    )
    built = build_model(config, np.arange(1, V + 1)).double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():  # biases start at 0, recurrent weights of relu at the identity
        for p in built.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.5)
    return built


def words(seed=0):
    """A block in which streams end sentences at different times, also twice in a row."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(V, (T, B), generator=generator)
    inputs[[0, 4, 5, 9], [0, 0, 0, 1]] = EOS
    return inputs


def random_state(model):
    empty = model.initial_state(B)
    return empty._replace(layers=torch.randn_like(empty.layers))


def weights(model):
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(cell, w, prefix, x, state):
    """One layer, one time step, one stream: state (S, h) before → state after; state[0] is out."""
    h = state[0]
    if cell in ("sigmoid", "tanh", "relu"):
        function = {"sigmoid": sigmoid, "tanh": np.tanh, "relu": lambda v: np.maximum(v, 0)}[cell]
        if f"{prefix}input.weight" in w:
            x = w[f"{prefix}input.weight"] @ x
        return np.stack([function(x + w[f"{prefix}recurrent"] @ h + w.get(f"{prefix}bias", 0))])
    a = w[f"{prefix}rnn.weight_ih_l0"] @ x + w.get(f"{prefix}rnn.bias_ih_l0", 0)
    b = w[f"{prefix}rnn.weight_hh_l0"] @ h + w.get(f"{prefix}rnn.bias_hh_l0", 0)
    if cell == "lstm":
        i, f, g, o = np.split(a + b, 4)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return np.stack([sigmoid(o) * np.tanh(c), c])
    (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
    z = sigmoid(az + bz)
    return np.stack([(1 - z) * np.tanh(an + sigmoid(ar + br) * bn) + z * h])


def naive(model, inputs, state):
    """Hidden states (T, B, ·) and the state after, one stream after another."""
    w, config = weights(model), model.config
    state = state.layers.numpy().copy()  # (layers, S, B, h)
    outputs = []
    for t, b in itertools.product(range(len(inputs)), range(inputs.shape[1])):
        word = int(inputs[t, b])
        x = w["embedding.weight"][word]
        for layer in range(config.layers):
            before = state[layer, :, b]
            if config.context == "sentence" and word == EOS:
                before = np.zeros_like(before)
            state[layer, :, b] = step(config.cell, w, f"layers.{layer}.", x, before)
            x = state[layer, 0, b].copy()
        outputs.append(w["projection.weight"] @ x if config.projection else x)
    return np.array(outputs).reshape(*inputs.shape, -1), state


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", ["sentence", "stream"])
@pytest.mark.parametrize(
    "shape", [{}, {"layers": 2, "bias": True}, {"layers": 3, "projection": 4}, {"bias": True}]
)
def test_against_the_formulas(cell, context, shape):
    model = network(cell=cell, context=context, **shape)
    state = random_state(model)
    hidden, after = model(words(), state)
    expected, expected_after = naive(model, words(), state)
    np.testing.assert_allclose(hidden.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(after.layers.numpy(), expected_after, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", ["sentence", "stream"])
@pytest.mark.parametrize("cuts", [[1, 12], [4, 1, 8], [1] * 13])
def test_blocks_with_carried_state_equal_one_long_block(cell, context, cuts):
    model = network(cell=cell, context=context, layers=2)
    state = random_state(model)
    whole, after = model(words(), state)
    parts = []
    for block in words().split(cuts):
        hidden, state = model(block, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state.layers, after.layers, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_is_remembered_past_a_sentence_end(cell):
    """Another state before it, or other words, change nothing from the sentence end on."""
    model = network(cell=cell, layers=2)
    inputs = words()
    inputs[6] = EOS
    hidden, after = model(inputs, model.initial_state(B))
    other = inputs.clone()
    other[:6] = words(seed=9)[:6]
    changed, changed_after = model(other, random_state(model))
    assert not torch.equal(changed[:6], hidden[:6])
    assert torch.equal(changed[6:], hidden[6:])
    assert torch.equal(changed_after.layers, after.layers)
    stream = network(cell=cell, layers=2, context="stream")
    assert not torch.equal(
        stream(inputs, stream.initial_state(B))[0][6:],
        stream(inputs, random_state(stream))[0][6:],
    )


@pytest.mark.parametrize("cell", CELLS)
def test_no_gradient_flows_past_a_sentence_end(cell):
    """The loss after it does not depend on the embedding of a word before it."""
    model = network(cell=cell, layers=2)
    inputs = torch.tensor([[2], [3], [EOS], [4], [5]])
    hidden, _ = model(inputs, model.initial_state(1))
    hidden[2:].sum().backward()
    touched = set(model.embedding.weight.grad.coalesce().indices()[0].tolist())
    rows = model.embedding.weight.grad.to_dense()
    assert {EOS, 4, 5} <= touched
    assert torch.equal(rows[[2, 3]], torch.zeros(2, H, dtype=torch.float64))
    assert bool((rows[[EOS, 4, 5]] != 0).any(1).all())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_gradients_stop_at_the_start_of_the_block(cell, context):
    model = network(cell=cell, context=context)
    state = random_state(model)
    state.layers.requires_grad_()
    hidden, after = model(words(), state)
    assert not after.layers.requires_grad
    hidden.sum().backward()
    assert state.layers.grad is None


def recurrent_weight(model):
    layer = model.layers[0]
    return layer.recurrent if hasattr(layer, "recurrent") else layer.rnn.weight_hh_l0


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_weights_learn_from_the_first_step(cell):
    """Their gradient has the term with the state that was carried into the block."""
    model = network(cell=cell)
    state = model.initial_state(B)
    state = state._replace(layers=torch.rand_like(state.layers) + 0.5)
    inputs = torch.randint(1, V, (1, B))
    model(inputs, state)[0].sum().backward()
    gradient = recurrent_weight(model).grad
    assert bool((gradient != 0).any())
    w = recurrent_weight(model)
    row, column, h = 1, 2, 1e-6
    with torch.no_grad():
        w[row, column] += h
        up = model(inputs, state)[0].sum()
        w[row, column] -= 2 * h
        down = model(inputs, state)[0].sum()
    assert float(gradient[row, column]) == pytest.approx(float(up - down) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_gradients_against_finite_differences(cell, context):
    model = network(cell=cell, context=context, layers=2, bias=True, projection=4)
    state = random_state(model)
    inputs, factors = words(), torch.randn(T, B, 4, dtype=torch.float64)

    def value():
        return float((model(inputs, state)[0] * factors).sum())

    (model(inputs, state)[0] * factors).sum().backward()
    generator = torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        if p.grad is None:
            assert name.startswith("output.")
            continue
        direction = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        expected = float((p.grad.to_dense() * direction).sum())
        found = 0.0
        for sign in (1, -1):
            with torch.no_grad():
                p.add_(sign * 1e-6 * direction)
                found += sign * value() / 2e-6
                p.sub_(sign * 1e-6 * direction)
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7), name


def fresh(**model):
    config = Config.from_dict({"model": {"hidden": H, **model}, "loss": {"samples": 3}})
    return build_model(config, np.arange(1, V + 1))


def test_the_relu_cell_starts_with_the_identity():
    model = fresh(cell="relu", layers=2)
    for layer in model.layers:
        assert torch.equal(layer.recurrent.detach(), torch.eye(H))


@pytest.mark.parametrize("cell", CELLS)
def test_weights_start_uniformly_within_the_range(cell):
    model = fresh(cell=cell, layers=2, bias=True, projection=3, init_range=0.03)
    for name, p in model.named_parameters():
        if "bias" in name:
            gate = p.detach().clone()
            if cell == "lstm" and "bias_ih" in name:  # the forget gate starts open
                assert torch.equal(gate[H : 2 * H], torch.ones(H))
                gate[H : 2 * H] = 0
            assert torch.equal(gate, torch.zeros_like(gate)), name
        elif not (cell == "relu" and "recurrent" in name):
            assert 0.015 < float(p.detach().abs().max()) <= 0.03, name


def test_no_biases_unless_asked_for():
    for cell in CELLS:
        assert not [name for name, _ in fresh(cell=cell).named_parameters() if "bias" in name]


def test_dropout_only_while_training():
    model = fresh(cell="lstm", layers=2, dropout=0.5)
    inputs, state = words(), model.initial_state(B)
    model.train()
    assert not torch.equal(model(inputs, state)[0], model(inputs, state)[0])
    assert bool((model(inputs, state)[0] == 0).any())
    model.eval()
    assert torch.equal(model(inputs, state)[0], model(inputs, state)[0])
    without = fresh(cell="lstm", layers=2)
    without.load_state_dict(model.state_dict())
    assert torch.equal(without(inputs, state)[0], model(inputs, state)[0])


def test_the_state_does_not_carry_dropout_s_holes():
    """What is dropped is the output to the layer above, not what the layer itself remembers."""
    model = fresh(cell="sigmoid", dropout=0.9)
    model.train()
    _, after = model(words(), model.initial_state(B))
    assert bool((after.layers > 0).all())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bias", [False, True])
def test_bf16_products_reach_every_matrix(cell, bias):
    """A change of a weight that bf16 does not see changes nothing."""
    shape = {"hidden": H, "cell": cell, "layers": 2, "projection": 4, "bias": bias}
    config = {"model": shape, "loss": {"loss": "full"}, "run": {"precision": "bf16"}}
    model = build_model(Config.from_dict(config), np.arange(1, V + 1))
    plain = build_model(Config.from_dict(config | {"run": {}}), np.arange(1, V + 1))
    matrices = [*(p for p in model.layers.parameters() if p.ndim == 2), model.projection.weight]
    assert len(matrices) == (4 if cell in ("sigmoid", "tanh", "relu") else 5)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(3)).bfloat16())
        plain.load_state_dict(model.state_dict())
        before, _ = model(words(), model.initial_state(B))
        close, _ = plain(words(), plain.initial_state(B))
        assert not torch.equal(before, close)
        torch.testing.assert_close(before, close, rtol=0, atol=0.05 * float(close.abs().max()))
        for p in matrices:
            p.mul_(1 + 2.0**-12)
        same, _ = model(words(), model.initial_state(B))
        assert torch.equal(same, before)
