"""Word tables: initial values as a pure function of place, row gradients, what others may ask."""

import pytest
import torch
from torch import nn

from blackout import BlackOut
from blackout.tables import Table, tables_of


def table(n_rows=40, size=6, **options):
    return Table(n_rows, size, **{"init_range": 0.3, **options})


def test_pytorch_s_seed_decides_the_initial_values():
    def weights(seed):
        torch.manual_seed(seed)
        return [p.detach().clone() for p in (table().weight, BlackOut(6, 40, 5).weight)]

    first, again, other = weights(1), weights(1), weights(2)
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    assert not torch.equal(*first), "two tables have two seeds"


def test_a_row_starts_the_same_however_many_there_are():
    """So a table can be divided, and a vocabulary can grow, without changing the others."""
    few, many = table(10, seed=7), table(5000, seed=7)
    assert torch.equal(few.weight, many.weight[:10])
    assert not torch.equal(few.weight, table(10, seed=8).weight)
    assert float(many.weight.detach().abs().max()) < 0.3


def test_a_bf16_table_starts_as_the_float32_one_rounded():
    half, single = table(seed=3, storage=torch.bfloat16), table(seed=3)
    assert torch.equal(half.weight, single.weight.bfloat16())
    double = table(seed=3, storage=torch.float64)
    assert torch.equal(double.weight, single.weight.double())


def test_resetting_gives_new_values():
    rows = table()
    before = rows.weight.detach().clone()
    rows.reset_parameters()
    assert not torch.equal(rows.weight, before)
    layer = BlackOut(4, 30, 5, bias=True)
    with torch.no_grad():
        layer.bias.fill_(3.0)
    layer.reset_parameters()
    assert not layer.bias.any()


def test_on_the_meta_device_there_is_nothing_to_fill():
    with torch.device("meta"):
        assert table().weight.is_meta


@pytest.mark.parametrize("sparse", [True, False])
def test_lookup_and_its_gradient_are_nn_embedding_s(sparse):
    ours = table(sparse=sparse)
    theirs = nn.Embedding(40, 6, sparse=sparse, _weight=ours.weight.detach().clone())
    words = torch.tensor([[3, 5, 3], [39, 0, 3]])
    factors = torch.randn(2, 3, 6)
    assert torch.equal(ours(words), theirs(words))
    for one in (ours, theirs):
        (one(words) * factors).sum().backward()
    assert ours.weight.grad.is_sparse == sparse
    torch.testing.assert_close(ours.weight.grad.to_dense(), theirs.weight.grad.to_dense())


def test_who_asks_pytorch_learns_that_gradients_are_sparse():
    """DistributedDataParallel looks for nn.Embedding with `sparse`."""
    layer = BlackOut(4, 30, 5, bias=True)
    found = list(tables_of(layer))
    assert len(found) == 2
    assert all(isinstance(part, nn.Embedding) and part.sparse for part in found)
    assert {id(part.weight) for part in found} == {id(layer.weight), id(layer.bias)}


def test_one_table_for_inputs_and_outputs():
    """Sharing the module ties the two: both gradients meet in it."""
    body, head = table(30, 4), BlackOut(4, 30, 5)
    head.table = body
    loss = head(body(torch.tensor([1, 2, 3])), torch.tensor([2, 3, 4])).loss
    loss.backward()
    touched = set(body.weight.grad.coalesce().indices()[0].tolist())
    assert {1, 2, 3, 4} <= touched
