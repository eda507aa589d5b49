"""Every operation in plain PyTorch: easy to read, and the truth for every faster version.

Words of a block come in G groups of M words; the words of a group share K samples. One group per
time step is the paper's layout (G = T, M = B); one group for the block (G = 1) and one for each
word (M = 1) are the two extremes. Shapes: hidden (G, M, h), target (G, M), samples (G, K).

Notation of the paper: u = <theta, s> is a logit, Q the proposal, z = u - log Q. Objectives J are
maximised; each function returns J together with its closed-form derivatives, so nothing of size
(G, M, K) is recorded for autograd but the derivatives themselves.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Objective = Literal["blackout", "blackout-noise", "importance", "nce"]

_GOLDEN = -7046029254386353131  # 2**64 / golden ratio, as a signed number
_MIX1 = -4658895280553007687
_MIX2 = -7723592293110705685


# ---------------------------------------------------------------------------- drawing samples


def mix64(x: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64 bit patterns: a bijection whose output looks random."""
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    if bits == 0:
        return x
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # >> keeps the sign: clear the copies of it


def random_bits(seed: int, step: int, groups: int, places: int, device: torch.device) -> Tensor:
    """53 random bits for each place of each group, (G, P): times 2**-53 they are uniform in [0, 1).

    A pure function of seed, step, group and place.
    """
    start = mix64(mix64(torch.tensor(seed, device=device) + _GOLDEN) + torch.tensor(step) * _GOLDEN)
    group = torch.arange(groups, device=device)[:, None] << 32
    place = torch.arange(places, device=device)[None, :]
    return _shift_right(mix64(start + (group + place + 1) * _GOLDEN), 11)


def random_below(bits: Tensor, limit: Tensor | int) -> Tensor:
    """Numbers uniform in 0 … limit - 1 of :func:`random_bits`; 0 where the limit is 0."""
    return (bits.double() * 2.0**-53 * limit).long()  # 1 - 2**-53 times a limit never rounds to it


def draw_samples(
    threshold: Tensor, alias: Tensor, seed: int, step: int, groups: int, samples: int
) -> Tensor:
    """Draws (G, K) words from an alias table, a pure function of seed, step, group and place.

    ``threshold`` (V,) float64 and ``alias`` (V,) int64: column w keeps w with chance
    ``threshold[w]`` and gives ``alias[w]`` otherwise.
    """
    vocab_size = len(threshold)
    bits = random_bits(seed, step, groups, samples, threshold.device)
    position = bits.double() * (vocab_size * 2.0**-53)
    column = position.long().clamp_(max=vocab_size - 1)
    keep = position - column < threshold[column]
    return torch.where(keep, column, alias[column])


# ---------------------------------------------------------------------------- objectives


class Objectives(NamedTuple):
    """J (G, M) of each word and its derivatives by the target's and the samples' logits."""

    value: Tensor  # (G, M)
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, K)


def _softmax(z_target: Tensor, z_samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Softmax over target and samples: (p_target, p_samples, maximum, log of the shifted total).

    log-sum-exp is ``maximum + log_total``; the two stay apart, since a maximum of 1e4 would round
    the other away.
    """
    maximum = torch.maximum(z_target, z_samples.max(-1).values)
    e_target = (z_target - maximum).exp()
    e_samples = (z_samples - maximum[..., None]).exp()
    total = e_target + e_samples.sum(-1)
    return e_target / total, e_samples / total[..., None], maximum, total.log()


def blackout_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """J = log p_i + sum_j log(1 - p_j), p the softmax over target and samples (paper eqs. 6-10).

    A sample that must not count (a copy of the target) has z = -inf. Only one sample, ``top``, can
    have p > 1/2; for it 1 - p would round to 0. So a second softmax leaves it out: its shares are
    the ratios p_k / (1 - p_top), and its log-sum-exp gives log(1 - p_top), without cancellation.
    """
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    top = z_samples.argmax(-1, keepdim=True)
    rest = z_samples.scatter(-1, top, -math.inf)  # (G, M, K) without the top sample
    share_target, share_rest, rest_maximum, rest_log_total = _softmax(z_target, rest)
    p_top = p_samples.gather(-1, top)
    p_rest = p_samples.scatter(-1, top, 0.0)
    odds = p_rest / (1 - p_rest)  # r_j = p_j / (1 - p_j); p_j <= 1/2 here, so r_j <= 1
    odds_sum = odds.sum(-1, keepdim=True)

    log_p_target = (z_target - maximum) - log_total
    log_miss_top = (rest_maximum - maximum) + (rest_log_total - log_total)  # log(1 - p_top)
    value = log_p_target + log_miss_top + torch.log1p(-p_rest).sum(-1)
    d_target = 1 - p_target + p_target * odds_sum[..., 0] + share_target * p_top[..., 0]
    d_rest = p_rest * (odds_sum - odds - 2) + share_rest * p_top
    d_top = p_top * (odds_sum - 2)
    return Objectives(value, d_target, d_rest.scatter(-1, top, d_top))


def blackout_noise_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """BlackOut as the paper's section 2.2 reads: a negative j is compared with the noise only,

    1 - p_j = sum_S / (e^{z_j} + sum_S), the sum over all samples, j among them.
    """
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    share = torch.nan_to_num(z_samples.softmax(-1))  # over the samples alone; 0 if none is left
    p_noise = share / (1 + share)
    value = (z_target - maximum) - log_total - torch.log1p(share).sum(-1)
    d_samples = share * p_noise.sum(-1, keepdim=True) - p_noise - p_samples
    return Objectives(value, 1 - p_target, d_samples)


def importance_objective(z_target: Tensor, z_samples: Tensor) -> Objectives:
    """J = log p_i alone: importance sampling, the sampled softmax (paper 2.1)."""
    p_target, p_samples, maximum, log_total = _softmax(z_target, z_samples)
    return Objectives((z_target - maximum) - log_total, 1 - p_target, -p_samples)


def nce_objective(delta_target: Tensor, delta_samples: Tensor) -> Objectives:
    """J = log sigma(d_i) + sum_j log sigma(-d_j), with d = u - log Z - log(K Q)."""
    value = logsigmoid(delta_target) + logsigmoid(-delta_samples).sum(-1)
    return Objectives(value, torch.sigmoid(-delta_target), -torch.sigmoid(delta_samples))


OBJECTIVES = {
    "blackout": blackout_objective,
    "blackout-noise": blackout_noise_objective,
    "importance": importance_objective,
    "nce": nce_objective,
}


# ---------------------------------------------------------------------------- sampled output layer


class SampledSaved(NamedTuple):
    """What the backward pass of the sampled output layer needs."""

    hidden: Tensor  # (G, M, h)
    sample_rows: Tensor  # (G, K, h), in the dtype of the products
    target_rows: Tensor  # (G, M, h)
    d_target: Tensor  # (G, M)
    d_samples: Tensor  # (G, M, K)


def sampled_forward(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    log_z: Tensor | float,
    target: Tensor,
    samples: Tensor,
    log_q_target: Tensor,
    log_q_samples: Tensor,
    objective: Objective,
    keep_copies: bool,
    product_dtype: torch.dtype,
) -> tuple[Tensor, SampledSaved]:
    """J (G, M) of the words of a block, and what :func:`sampled_backward` needs.

    ``log_q_target`` (G, M) and ``log_q_samples`` (G, K) are log Q of the words there. Copies of the
    target among its samples count where ``keep_copies`` says so.
    """
    work = torch.promote_types(hidden.dtype, torch.float32)  # logits are never kept in 16 bits
    target_rows = weight[target]  # (G, M, h)
    sample_rows = weight[samples].to(product_dtype)  # (G, K, h)
    u_target = (hidden.to(work) * target_rows).sum(-1)
    u_samples = torch.bmm(hidden.to(product_dtype), sample_rows.mT).to(work)  # (G, M, K)
    if bias is not None:
        u_target = u_target + bias[target]
        u_samples = u_samples + bias[samples][:, None, :]
    constant = 0.0 if objective != "nce" else math.log(samples.shape[1]) + log_z
    z_target = u_target - (log_q_target + constant).to(work)
    z_samples = u_samples - (log_q_samples + constant).to(work)[:, None, :]
    if not keep_copies:
        z_samples.masked_fill_(samples[:, None, :] == target[:, :, None], -math.inf)
    value, d_target, d_samples = OBJECTIVES[objective](z_target, z_samples)
    return value, SampledSaved(hidden, sample_rows, target_rows, d_target, d_samples)


class SampledGradients(NamedTuple):
    """Gradients of the sampled output layer; row i of the table's belongs to word ``rows[i]``."""

    hidden: Tensor  # (G, M, h)
    rows: Tensor  # (G*K + G*M,)
    row_values: Tensor  # (G*K + G*M, h)
    bias_values: Tensor | None  # (G*K + G*M,), if asked for
    log_z: Tensor | None  # (), if asked for


def sampled_backward(
    saved: SampledSaved,
    target: Tensor,
    samples: Tensor,
    grad: Tensor,
    logit_sums: bool = True,
    row_dtype: torch.dtype | None = None,
) -> SampledGradients:
    """The gradients of sum(grad * J); ``grad`` (G, M); bias and log Z only with ``logit_sums``.

    ``row_dtype``: the type that faster versions give ``row_values``; here they are as computed.

    The factors ``grad`` go into the small arrays, the hidden states, not into the (G, M, K) ones.
    """
    hidden, sample_rows, target_rows, d_target, d_samples = saved
    dtype, work, size = sample_rows.dtype, d_samples.dtype, hidden.shape[-1]
    scaled = hidden * grad[..., None]  # (G, M, h)
    d_products = d_samples.to(dtype)
    d_hidden = torch.bmm(d_products, sample_rows).to(work)
    d_hidden = (d_hidden + d_target[..., None] * target_rows) * grad[..., None]
    d_sample_rows = torch.bmm(d_products.mT, scaled.to(dtype)).to(work)  # (G, K, h)
    d_target_rows = d_target[..., None] * scaled  # (G, M, h)
    sums = logit_gradients(d_target, d_samples, grad) if logit_sums else (None, None)
    return SampledGradients(
        d_hidden.to(hidden.dtype),
        torch.cat([samples.flatten(), target.flatten()]),
        torch.cat([d_sample_rows.reshape(-1, size), d_target_rows.reshape(-1, size)]),
        *sums,
    )


def logit_gradients(d_target: Tensor, d_samples: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients by the biases of samples and targets, (G*K + G*M,), and by log Z."""
    d_u_samples = torch.einsum("gmk,gm->gk", d_samples, grad)
    d_u_target = d_target * grad
    return (
        torch.cat([d_u_samples.flatten(), d_u_target.flatten()]),
        -(d_u_samples.sum() + d_u_target.sum()),
    )


# ---------------------------------------------------------------------------- tables


def lookup(table: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``table[rows]`` in ``dtype``."""
    return table[rows].to(dtype)


# ---------------------------------------------------------------------------- exact softmax


def target_log_prob(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    product_dtype: torch.dtype,
) -> Tensor:
    """Exact log p(target | hidden), (N,)."""
    logit = target_logit(hidden, weight, bias, target)
    return logit - log_partition(hidden, weight, bias, product_dtype)


def target_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """u of each target, (N,)."""
    logit = (hidden * weight[target].to(hidden.dtype)).sum(1)
    return logit if bias is None else logit + bias[target]


def log_partition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    product_dtype: torch.dtype,
    tile: int = 8192,
    chunk: int = 1024,
) -> Tensor:
    """log of the sum of exp(u) over all words, (N,): ``chunk`` × ``tile`` logits at once."""
    parts = [
        _log_partition(part, weight, bias, product_dtype, tile) for part in hidden.split(chunk)
    ]
    return torch.cat(parts)


def _log_partition(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, product_dtype: torch.dtype, tile: int
) -> Tensor:
    maximum = hidden.new_full((len(hidden),), -math.inf)
    total = hidden.new_zeros(len(hidden))
    operand = hidden.to(product_dtype)
    for start in range(0, len(weight), tile):
        logits = (operand @ weight[start : start + tile].to(product_dtype).mT).to(hidden.dtype)
        if bias is not None:
            logits = logits + bias[start : start + tile]
        higher = torch.maximum(maximum, logits.max(1).values)
        total = total * (maximum - higher).exp()
        total += logits.sub_(higher[:, None]).exp_().sum(1)
        maximum = higher
    return maximum + total.log()


# ---------------------------------------------------------------------------- row-sparse RMSProp


def sum_duplicates(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, ascending, and for each the sum of its values."""
    distinct, place = rows.unique(return_inverse=True)
    sums = values.new_zeros(len(distinct), *values.shape[1:])
    return distinct, sums.index_add_(0, place, values)


class RowGradient(NamedTuple):
    """A row-sparse gradient with each row once."""

    rows: Tensor  # (U,), ascending
    values: Tensor  # (U, ...)


def collect_rows(rows: Tensor, values: Tensor, length: int) -> RowGradient:
    """The gradient of a table with ``length`` rows, duplicates summed in float32 or better."""
    return RowGradient(*sum_duplicates(rows, values.to(_work_type(values))))


def squared_norm(gradient: RowGradient | Tensor) -> float:
    """The sum of the squares of a gradient."""
    values = gradient if isinstance(gradient, Tensor) else gradient.values
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2


def exact_aging(touched: Tensor, rows: Tensor, step: int, beta: float) -> Tensor:
    """beta^(steps since the last update) of each row, (U,) float64; marks the rows as updated."""
    waited = step - touched[rows]
    touched[rows] = step
    return beta ** waited.double()


def rmsprop_update(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
) -> tuple[Tensor, Tensor]:
    """New (weight, moment): v <- aging v + (1-beta) g², theta <- theta - lr g / sqrt(v + damping).

    ``aging`` is beta, or for each row beta to the power of the steps it has waited. A ``moment``
    with one number a row (U, 1) takes the mean of g² over the row.
    """
    square = gradient.square()
    if moment.shape != gradient.shape:
        square = square.flatten(1).mean(1).view(moment.shape)
    moment = moment * aging + (1 - beta) * square
    root = (moment + damping).sqrt() if damping_inside else moment.sqrt() + damping
    # A weight that never had a gradient has 0 / 0 without damping: it stays where it is.
    return weight - lr * gradient / root.clamp_min(torch.finfo(root.dtype).tiny), moment


def rmsprop_rows(
    weight: Tensor,
    moment: Tensor,
    gradient: RowGradient,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates the touched rows of ``weight`` and ``moment`` in place with factor · gradient.

    ``rounding`` is the key of the random bits that round a bfloat16 weight.
    """
    rows, values = gradient
    new, new_moment = rmsprop_update(
        weight[rows].to(values.dtype),
        moment[rows],
        values * factor,
        aging,
        lr,
        beta,
        damping,
        damping_inside,
    )
    moment[rows] = new_moment
    weight[rows] = rounded(new, rows, rounding) if weight.dtype == torch.bfloat16 else new


def rmsprop_dense(
    weight: Tensor,
    moment: Tensor,
    gradient: Tensor,
    factor: float,
    aging: Tensor | float,
    lr: float,
    beta: float,
    damping: float,
    damping_inside: bool,
    rounding: int,
) -> None:
    """Updates all of ``weight`` and ``moment`` in place with factor · gradient."""
    work = _work_type(weight)
    new, new_moment = rmsprop_update(
        weight.to(work),
        moment,
        gradient.to(work) * factor,
        aging,
        lr,
        beta,
        damping,
        damping_inside,
    )
    moment.copy_(new_moment)
    if weight.dtype == torch.bfloat16:
        new = rounded(new, torch.arange(len(new), device=new.device), rounding)
    weight.copy_(new)


def _work_type(values: Tensor) -> torch.dtype:
    return torch.promote_types(values.dtype, torch.float32)


def rounding_key(seed: int, table: int, step: int) -> int:
    """The key of the random bits with which one step rounds one table."""
    words = torch.tensor([seed, table, step])
    key = torch.zeros((), dtype=torch.int64)
    for word in words:
        key = mix64(key + word + _GOLDEN)
    return int(key)


def rounded(values: Tensor, rows: Tensor, key: int) -> Tensor:
    """``values`` (U, ...) float32 as bfloat16, up or down at random so that the mean is exact.

    16 random bits are added below the bits that stay. They are a pure function of the key, the row
    and the column; four columns share one draw of 64 bits.
    """
    flat = values.reshape(len(values), -1)
    draws = (flat.shape[1] + 3) // 4
    place = rows[:, None] * draws + torch.arange(draws, device=rows.device) + 1
    bits = mix64(place * _GOLDEN + key)  # (U, draws)
    noise = torch.stack([_shift_right(bits, 16 * i) & 0xFFFF for i in range(4)], -1)
    noise = noise.flatten(1)[:, : flat.shape[1]].int()
    number = flat.contiguous().view(torch.int32)
    up = torch.where(flat.isfinite(), number + noise, number) & -65536  # the upper 16 bits
    result = torch.where(flat.isnan(), flat, up.view(torch.float32))
    return result.to(torch.bfloat16).view(values.shape)


# ---------------------------------------------------------------------------- recurrence

ACTIVATIONS = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


def recurrence(
    inputs: Tensor,
    state: Tensor,
    weight: Tensor,
    keep: Tensor | None,
    activation: str,
    product_dtype: torch.dtype,
) -> Tensor:
    """s_t = f(x_t + W s_{t-1}) over a block: inputs (T, B, h), state (B, h) → (T, B, h).

    ``keep`` (T, B, 1) is 0 where the state before the step must not be used, else 1.
    """
    function, matrix = ACTIVATIONS[activation], weight.to(product_dtype).mT
    outputs = []
    for t, x in enumerate(inputs):
        previous = state if keep is None else state * keep[t]
        state = function(x + torch.mm(previous.to(product_dtype), matrix).to(x.dtype))
        outputs.append(state)
    return torch.stack(outputs)
