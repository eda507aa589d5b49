"""A state that is none of these parameters' is refused before native code could write past it."""

import copy

import pytest
import torch
from torch import nn

import blackout
from blackout.errors import UserError
from blackout.optim import clip_grad_norm_

OPTIMIZERS = [blackout.RMSProp, blackout.Adagrad, blackout.Adam]
every_optimizer = pytest.mark.parametrize("optimizer_class", OPTIMIZERS)


def stepped(optimizer_class, rows=30, **options):
    """A table of that many rows that had one step, and its optimiser."""
    table = nn.Embedding(rows, 4, sparse=options.pop("sparse", True))
    optimizer = optimizer_class(table.parameters(), **options)
    table(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    return table, optimizer


@every_optimizer
@pytest.mark.parametrize("second_moment", ["full", "row"])
def test_a_state_of_another_vocabulary_is_refused_and_changes_nothing(
    optimizer_class, second_moment
):
    _, small = stepped(optimizer_class, rows=5, second_moment=second_moment)
    table, optimizer = stepped(optimizer_class)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(UserError, match=r"moment is \(5, .\), its parameter \(30, 4\)"):
        optimizer.load_state_dict(small.state_dict())
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for name, value in after["state"][0].items():
        assert torch.equal(value, before["state"][0][name])
    with pytest.raises(ValueError, match="doesn't match"):
        optimizer_class([*table.parameters(), nn.Parameter(torch.ones(1))]).load_state_dict(before)


@every_optimizer
def test_a_state_of_another_optimiser_is_refused(optimizer_class):
    _, optimizer = stepped(optimizer_class)
    others = [stepped(other)[1] for other in OPTIMIZERS if other is not optimizer_class]
    _, theirs = stepped(torch.optim.Adam, sparse=False)
    for other in (*others, theirs):
        with pytest.raises(UserError, match="saved by another optimizer"):
            optimizer.load_state_dict(other.state_dict())


@every_optimizer
def test_a_table_that_grew_under_its_optimiser_is_refused(optimizer_class):
    table, optimizer = stepped(optimizer_class)
    optimizer.zero_grad()
    table.weight.data = torch.zeros(60, 4)
    table(torch.tensor([59])).sum().backward()
    with pytest.raises(UserError, match=r"is \(30, 4\), its parameter \(60, 4\)"):
        optimizer.step()


@every_optimizer
@pytest.mark.parametrize("sparse", [True, False])
def test_a_network_cast_between_two_steps_goes_on(optimizer_class, sparse):
    """Its moments are widened with it, and so are those of a state saved before."""
    table, optimizer = stepped(optimizer_class, sparse=sparse)
    saved = copy.deepcopy(optimizer.state_dict())
    for loaded in (False, True):
        optimizer.zero_grad()
        table.double()(torch.tensor([1, 2])).sum().backward()
        if loaded:
            optimizer.load_state_dict(saved)
        optimizer.step()
        assert optimizer.state[table.weight]["moment"].dtype == torch.float64


@every_optimizer
def test_what_a_hook_makes_of_a_saved_state_is_what_is_loaded(optimizer_class):
    """Such as that of a vocabulary that has grown since."""
    _, small = stepped(optimizer_class, rows=5)
    table, optimizer = stepped(optimizer_class)

    def grown(_, state):
        state = copy.deepcopy(state)
        for name, value in state["state"][0].items():
            if value.ndim:
                state["state"][0][name] = value.new_zeros(30, *value.shape[1:])
                state["state"][0][name][:5] = value
        return state

    optimizer.register_load_state_dict_pre_hook(grown)
    optimizer.load_state_dict(small.state_dict())
    found = optimizer.state[table.weight]["moment"]
    assert found.shape == (30, 4)
    assert found[:5].any()
    assert not found[5:].any()


def test_a_norm_that_is_no_number_and_a_limit_below_zero():
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.tensor([3.0, float("nan")])
    with pytest.raises(UserError, match="the norm of the gradients is nan; nothing was clipped"):
        clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad[0] == 3
    for limit in (-1.0, float("nan")):
        with pytest.raises(UserError, match="max_norm is"):
            clip_grad_norm_([p], limit)
