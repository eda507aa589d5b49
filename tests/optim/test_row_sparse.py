"""What all our optimisers promise: settings, state, copies, manners towards autograd."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import blackout
from blackout.errors import UserError
from blackout.optim import clip_grad_norm_, global_norm

OPTIMIZERS = [blackout.RMSProp, blackout.Adagrad, blackout.Adam]
every_optimizer = pytest.mark.parametrize("optimizer_class", OPTIMIZERS)


def train(table: nn.Embedding, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        table(torch.randint(30, (5,), generator=generator)).float().square().sum().backward()
        optimizer.step()


def new_table() -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(30, 4, sparse=True)


@every_optimizer
@pytest.mark.parametrize("second_moment", ["full", "row"])
@pytest.mark.parametrize("how", ["state", "pickle", "copy"])
def test_a_copy_goes_on_exactly(optimizer_class, second_moment, how):
    def make() -> tuple[nn.Embedding, torch.optim.Optimizer]:
        table = new_table()
        options = {"clip": 0.5, "second_moment": second_moment, "weight_decay": 0.1}
        return table, optimizer_class(table.parameters(), lr=0.01, **options)

    straight, first = make(), make()
    train(*straight, range(20))
    train(*first, range(10))
    if how == "copy":
        second = copy.deepcopy(first)
    elif how == "pickle":
        second = pickle.loads(pickle.dumps(first))
    else:
        buffer = io.BytesIO()
        torch.save([part.state_dict() for part in first], buffer)
        buffer.seek(0)
        table = new_table()
        second = table, optimizer_class(table.parameters(), lr=0.5)
        for part, state in zip(second, torch.load(buffer), strict=True):
            part.load_state_dict(state)
    assert second[1].clip == 0.5
    for name, value in second[1].state[second[0].weight].items():
        assert value.dtype == first[1].state[first[0].weight][name].dtype  # clocks stay whole
    assert second[1].last_norm == first[1].last_norm or how == "state"
    train(*second, range(10, 20))
    assert torch.equal(second[0].weight, straight[0].weight)
    assert not torch.equal(first[0].weight, straight[0].weight)


@every_optimizer
@pytest.mark.parametrize("sparse", [False, True])
def test_a_second_backward_through_the_old_graph_is_refused(optimizer_class, sparse):
    matrix = nn.Embedding(4, 4, sparse=sparse)
    optimizer = optimizer_class(matrix.parameters())
    used_twice = nn.functional.linear(torch.ones(2, 4, requires_grad=True), matrix.weight)
    matrix(torch.tensor([1])).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used_twice.sum().backward()


@every_optimizer
@pytest.mark.parametrize(
    "bad",
    [
        {"lr": -1.0},
        {"lr": float("inf")},
        {"lr": float("nan")},
        {"lr": "0.1"},
        {"lr": torch.tensor([0.1, 0.2])},
        {"by_width": "no"},
        {"capturable": "yes"},
        {"damping": -1.0},
        {"clip": -1.0},
        {"clip": None},
        {"seed": 0.5},
        {"weight_decay": -0.1},
        {"second_moment": "half"},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_bad_settings_are_refused_by_name(optimizer_class, bad):
    p = nn.Parameter(torch.ones(1))
    (name,) = bad
    with pytest.raises(UserError, match=name):
        optimizer_class([p], **bad)
    with pytest.raises(UserError, match=name):
        optimizer_class([{"params": [p], **bad}])
    optimizer = optimizer_class([p])
    with pytest.raises(UserError, match=name):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], **bad})
    state = optimizer.state_dict()
    state["param_groups"][0].update(bad)
    with pytest.raises(UserError, match=name):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize(
    ("optimizer_class", "bad"),
    [
        (blackout.RMSProp, {"decay": "nonsense"}),
        (blackout.RMSProp, {"beta": 1.0}),
        (blackout.RMSProp, {"correct_bias": "no"}),
        (blackout.Adam, {"decay": "paper"}),
        (blackout.Adam, {"betas": (0.9, 1.0)}),
        (blackout.Adam, {"betas": (0.9,)}),
        (blackout.Adam, {"betas": 0.9}),
    ],
)
def test_bad_settings_of_their_own(optimizer_class, bad):
    p = nn.Parameter(torch.ones(1))
    with pytest.raises(UserError, match=next(iter(bad))):
        optimizer_class([{"params": [p], **bad}])


def test_a_decay_spoiled_later_is_refused_too():
    table = new_table()
    optimizer = blackout.RMSProp(table.parameters())
    optimizer.param_groups[0]["decay"] = "nonsense"
    with pytest.raises(UserError, match="nonsense"):
        train(table, optimizer, range(1))


def test_one_clip_for_all_groups():
    first, second = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = blackout.RMSProp([{"params": [first]}, {"params": [second]}], clip=1.0)
    optimizer.clip = 2.0
    assert [group["clip"] for group in optimizer.param_groups] == [2.0, 2.0]
    optimizer.param_groups[1]["clip"] = 3.0
    first.grad = torch.ones(2)
    with pytest.raises(UserError, match=r"2\.0 and 3\.0"):
        optimizer.step()


@pytest.mark.parametrize("sparse", [False, True])
def test_clipping_one_tensor(sparse):
    table = nn.Embedding(5, 3, sparse=sparse)
    table(torch.tensor([1, 1, 4])).sum().backward()
    assert float(clip_grad_norm_(table.weight, 1.0)) == pytest.approx(15**0.5)
    assert float(global_norm([table.weight.grad])) == pytest.approx(1.0)


@every_optimizer
@pytest.mark.parametrize("sparse", [False, True])
def test_weight_decay_is_decoupled_and_only_of_what_is_touched(optimizer_class, sparse):
    p = nn.Parameter(torch.full((3, 2), 2.0, dtype=torch.float64))
    p.grad = torch.sparse_coo_tensor([[1]], [[0.0, 0.0]], (3, 2), check_invariants=True).double()
    if not sparse:
        p.grad = p.grad.to_dense()
    optimizer_class([p], lr=0.1, damping=1.0, weight_decay=0.5, by_width=False).step()
    untouched = 2.0 if sparse else 1.9
    want = torch.tensor([[untouched] * 2, [1.9] * 2, [untouched] * 2], dtype=torch.float64)
    torch.testing.assert_close(p.detach(), want)


class NothingIsRead(TorchDispatchMode):
    """Refuses what would make the host wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "item", "nonzero"), name
        return func(*args, **(kwargs or {}))


@every_optimizer
@pytest.mark.parametrize("sparse", [False, True])
def test_capturable_brings_nothing_to_the_host(optimizer_class, sparse, row_gradient):
    def run(capturable: bool) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        p = nn.Parameter(torch.ones(20, 3, dtype=torch.float64))
        optimizer = optimizer_class([p], lr=0.1, clip=1.0, capturable=capturable, impl="reference")
        for _ in range(5):
            gradient = row_gradient(20, 3, 6, generator)
            p.grad = gradient if sparse else gradient.to_dense()
            if capturable:
                with NothingIsRead():
                    optimizer.step()
            else:
                optimizer.step()
        return p.detach()

    torch.testing.assert_close(run(True), run(False), rtol=1e-12, atol=1e-14)


@every_optimizer
def test_steps_below_the_resolution_of_bfloat16_count_in_the_mean(optimizer_class):
    """A step of 2^-12 at weights of 1, where the next bfloat16 below is 2^-8 away."""
    p = nn.Parameter(torch.ones(2000, 8, dtype=torch.bfloat16))
    options = {"lr": 2.0**-12, "damping": 1.0, "by_width": False, "seed": 3}
    if optimizer_class is not blackout.Adagrad:
        options["damping"] = 0.0
    optimizer = optimizer_class([p], **options)
    rows = torch.arange(2000)
    values = torch.full((2000, 8), 1.0)
    p.grad_dtype = None
    p.grad = torch.sparse_coo_tensor(rows[None], values, p.shape, check_invariants=True)
    optimizer.step()
    expected = 2.0**-12 / (2**0.5 if optimizer_class is blackout.Adagrad else 1)
    moved = 1 - p.detach().double()
    assert set(moved.unique().tolist()) == {0.0, 2.0**-8}
    spread = (expected * 2.0**-8 / 16000) ** 0.5
    assert float(moved.mean()) == pytest.approx(expected, abs=4 * spread)


# ------------------------------------------------------------------ whatever else PyTorch does


@every_optimizer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tables_of_every_type_move(optimizer_class, dtype):
    table = nn.Embedding(30, 4, sparse=True, dtype=dtype)
    before = table.weight.detach().clone()
    optimizer = optimizer_class(table.parameters(), lr=0.1)
    train(table, optimizer, range(3))
    assert table.weight.dtype == dtype
    assert optimizer.state[table.weight]["moment"].dtype == torch.promote_types(
        dtype, torch.float32
    )
    moved = (table.weight != before).any(1)
    assert 0 < int(moved.sum()) < 30


@every_optimizer
def test_single_numbers_and_empty_tables_of_bfloat16_are_parameters_too(optimizer_class):
    """A learned log Z of NCE is one."""
    number, none = nn.Parameter(torch.tensor(2.0).bfloat16()), nn.Parameter(torch.ones(0, 4))
    none.data = none.data.bfloat16()
    optimizer = optimizer_class([number, none], lr=0.5)
    number.grad, none.grad = torch.ones_like(number), torch.ones_like(none)
    optimizer.step()
    assert float(number.detach()) < 2


@every_optimizer
def test_a_gradient_of_single_numbers_is_one(optimizer_class):
    """``sparse_coo`` with an index for each number, not for each row."""
    results = []
    for layout in (torch.sparse_coo, torch.strided):
        p = nn.Parameter(torch.ones(5, 3))
        gradient = torch.zeros(5, 3)
        gradient[1, 2], gradient[3, 0] = 1.0, -2.0
        p.grad = gradient.to_sparse() if layout == torch.sparse_coo else gradient
        clip_grad_norm_([p], 1.0)
        optimizer_class([p], lr=0.1).step()
        results.append(p.detach())
    assert torch.equal(*results)
    assert results[0][1, 2] < 1 < results[0][3, 0]


@every_optimizer
def test_schedules_of_pytorch_begin_and_end_with_0(optimizer_class):
    """And what was saved there is loaded."""
    schedules = torch.optim.lr_scheduler
    table = new_table()
    optimizer = optimizer_class(table.parameters(), lr=0.1)
    warmup = schedules.LambdaLR(optimizer, lambda step: min(step / 3, 1.0))
    fall = schedules.CosineAnnealingLR(optimizer, T_max=3)
    joined = schedules.SequentialLR(optimizer, [warmup, fall], milestones=[3])
    rates = []
    before = table.weight.detach().clone()
    for step in range(7):
        again = optimizer_class(new_table().parameters())
        again.load_state_dict(optimizer.state_dict())
        rates.append(optimizer.param_groups[0]["lr"])
        train(table, optimizer, range(step, step + 1))
        if step == 0:
            assert torch.equal(table.weight, before), "a rate of 0 moves nothing"
        joined.step()
    assert rates == pytest.approx([0, 0.1 / 3, 0.2 / 3, 0.1, 0.075, 0.025, 0], abs=1e-12)


@every_optimizer
def test_groups_of_their_own_named_parameters_and_a_group_added_later(optimizer_class):
    body, table = nn.Linear(4, 4), new_table()
    groups = [
        {"params": list(body.named_parameters()), "lr": 0.1, "by_width": False},
        {"params": list(table.named_parameters()), "second_moment": "row", "weight_decay": 0.1},
    ]
    optimizer = optimizer_class(groups, lr=0.01)
    later = nn.Parameter(torch.zeros(3))
    optimizer.add_param_group({"params": [("later", later)], "lr": 0.5, "damping": 0.0})
    body(table(torch.tensor([1, 2]))).sum().backward()
    later.grad = torch.ones(3)
    optimizer.step()
    assert optimizer.state[table.weight]["moment"].shape == (30, 1)
    torch.testing.assert_close(later.detach(), torch.full((3,), -0.5))
    with pytest.raises(UserError, match=r"a parameter is torch\.complex64"):
        optimizer.add_param_group(
            {"params": [("z", nn.Parameter(torch.ones(1, dtype=torch.cfloat)))]}
        )
    assert len(optimizer.param_groups) == 3


@every_optimizer
def test_a_compiled_step_is_the_step(optimizer_class):
    results = []
    for compiled in (False, True):
        table = new_table()
        optimizer = optimizer_class(table.parameters(), lr=0.01, clip=1.0)
        if compiled:
            optimizer.step = torch.compile(optimizer.step, backend="eager")
        train(table, optimizer, range(3))
        results.append(table.weight.detach())
    assert torch.equal(*results)


@every_optimizer
def test_a_gradient_scaler_unscales_rows_and_skips_what_overflowed(optimizer_class):
    results = []
    for scaled in (False, True):
        table = new_table()
        optimizer = optimizer_class(table.parameters(), lr=0.01, clip=1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)  # zeros or nothing, it is the same
            loss = table(torch.tensor([step, 7])).square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        before = table.weight.detach().clone()
        if scaled:
            scaler.scale(table(torch.tensor([1])).sum() * torch.inf).backward()
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0**9
        results.append(before)
        assert torch.equal(table.weight, before)
    torch.testing.assert_close(*results)


def test_averaged_weights_and_a_mean_that_follows():
    """``torch.optim.swa_utils``: the averaged layer is a layer."""
    torch.manual_seed(0)
    layer = blackout.BlackOut(4, 30, samples=5)
    optimizer = blackout.RMSProp(layer.parameters(), lr=0.05)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(6, 4), torch.randint(30, (6,))).loss.backward()
        optimizer.step()
        averaged.update_parameters(layer)
        seen.append(layer.weight.detach().clone())
    torch.testing.assert_close(averaged.module.weight.detach(), torch.stack(seen).mean(0))
    states = torch.randn(2, 4)
    found = averaged.eval()(states, torch.tensor([1, 2])).output
    expected = (states @ averaged.module.weight.T).log_softmax(1)[[0, 1], [1, 2]]
    torch.testing.assert_close(found, expected)
