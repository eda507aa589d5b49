"""Draws the pictures of method.md: ``python docs/make_pictures.py [names]``, half a minute for all.

Every curve is computed by the package itself: the output layers, the proposal, the objectives of
``blackout.ops.reference``, the optimiser. The same versions give the same files, byte for byte.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from torch import Tensor

import blackout
from blackout.ops.engine import Objective
from blackout.ops.reference import OBJECTIVES, Objectives
from blackout.pages.palette import BLUE, GREEN, GREY, GRID, INK, ORANGE, PURPLE, VERMILION
from blackout.proposals import UnigramProposal

SERIES = {"BlackOut": VERMILION, "importance sampling": BLUE, "NCE": GREEN}

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "blackout",
    "svg.fonttype": "none",  # words stay words: small files, sharp at any size
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 2.0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
}


def panels(count: int, height: float, **options: Any) -> tuple[Figure, Sequence[Any]]:
    """A figure about 670 pixels wide with ``count`` axes side by side."""
    layout = ConstrainedLayoutEngine(wspace=0.06)
    figure = Figure(figsize=(7.0, height), layout=layout, facecolor="white")
    axes = figure.subplots(1, count, squeeze=False, **options)
    return figure, list(axes[0])


# ---------------------------------------------------------------------------- the worked example

WORDS = ["the", "a", "cat", "sat", "dog", "mat", "rug", "sofa"]
COUNTS = torch.tensor([100, 49, 25, 16, 9, 4, 4, 1])
LOGITS = torch.tensor([1.0, 0.0, -0.5, -1.0, 0.5, 2.0, 1.5, 1.0])
TARGET = WORDS.index("mat")
EXAMPLE: dict[str, Any] = {"samples": 4, "counts": COUNTS, "alpha": 0.5, "seed": 121}


def example_gradient(layer: blackout.BlackOut | blackout.Sampled) -> Tensor:
    """dJ/du of all words; with a hidden state of one unit, 1, the weights are the logits."""
    layer.weight.data[:, 0] = LOGITS
    layer(torch.ones(1, 1), torch.tensor([TARGET])).loss.backward()
    gradient = layer.weight.grad
    assert gradient is not None
    return -gradient.to_dense()[:, 0]


def lineup() -> Figure:
    """The example of the text: all words, the line-up that stands for them, what each word gets."""
    layer = blackout.BlackOut(1, len(WORDS), **EXAMPLE)
    target = torch.tensor([[TARGET]])
    drawn = layer.proposal.draw(EXAMPLE["seed"], 0, target, EXAMPLE["samples"]).samples[0]
    row = [TARGET, *drawn.tolist()]
    assert isinstance(layer.proposal, UnigramProposal)
    posterior = (LOGITS - layer.proposal.log_q)[row].softmax(0)
    gradients = {
        "BlackOut": example_gradient(layer),
        "importance sampling": example_gradient(blackout.Sampled(1, len(WORDS), **EXAMPLE)),
    }
    figure, (everyone, few, push) = panels(3, 2.9, gridspec_kw={"width_ratios": [1, 1, 1.15]})
    bar_values(everyone, WORDS, LOGITS.softmax(0).tolist(), TARGET)
    everyone.set_title("(a) exact: all V words")
    everyone.set_xlabel("p")
    bar_values(few, [WORDS[word] for word in row], posterior.tolist(), 0)
    few.set_title("(b) the line-up")
    few.set_xlabel("p̃")
    for offset, (name, values) in zip((-0.2, 0.2), gradients.items(), strict=True):
        places = torch.arange(len(WORDS)) + offset
        push.barh(places, values, height=0.38, color=SERIES[name], label=name)
    push.set_yticks(range(len(WORDS)), WORDS)
    push.invert_yaxis()
    push.axvline(0, color=INK, linewidth=0.8)
    push.set_title("(c) what each row gets")
    push.set_xlabel("∂J/∂u")
    figure.legend(loc="outside lower right", ncols=2, fontsize=8.5)
    for axes in (everyone, few, push):
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    return figure


def bar_values(axes: Any, labels: list[str], values: list[float], target: int) -> None:
    """Horizontal bars with their values, the target's in its own colour."""
    colours = [VERMILION if i == target else GREY for i in range(len(labels))]
    bars = axes.barh(range(len(labels)), values, color=colours, height=0.7)
    axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=3, fontsize=8.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3 * max(values))


# ---------------------------------------------------------------------------- the gradient


def derivatives(objective: Objective, target: Tensor, samples: Tensor) -> Objectives:
    """J and its derivatives for line-ups with these shares, (N,) and (N, K)."""
    return OBJECTIVES[objective](target.log()[None], samples.log()[None])


def gradient() -> Figure:
    """What the target is pulled up by, and a sample pushed down by, against their own p̃."""
    figure, (pull, push) = panels(2, 3.3)
    draw_pull(pull)
    draw_push(push)
    for axes in (pull, push):
        axes.grid()
        axes.set_xlim(0, 1)
        axes.set_ylabel("∂J/∂u")
    return figure


def draw_pull(axes: Any) -> None:
    """dJ/du of the target where many samples share what it lacks, and where one has it all."""
    p = torch.linspace(0.002, 0.998, 120, dtype=torch.float64)
    many = ((1 - p) / 400)[:, None].expand(-1, 400)
    one = (1 - p)[:, None]
    axes.plot(p, derivatives("blackout", p, one).d_target[0], color=VERMILION, linestyle="--")
    axes.plot(p, derivatives("blackout", p, many).d_target[0], color=VERMILION)
    axes.plot(p, derivatives("sampled", p, many).d_target[0], color=BLUE)
    label(axes, 0.32, 1.52, "BlackOut, one sample\nhas the rest", VERMILION)
    label(axes, 0.04, 1.05, "BlackOut,\nmany share\nthe rest", VERMILION)
    label(axes, 0.05, 0.35, "importance\nsampling, NCE", BLUE)
    axes.set_title("(a) pull on the target")
    axes.set_xlabel("p̃ of the target")


def draw_push(axes: Any) -> None:
    """dJ/du of a sample beside the target alone, and beside another sample with a share of 0.85."""
    p = torch.linspace(0.002, 0.998, 120, dtype=torch.float64)
    lines: list[tuple[Objective, str]] = [("sampled", BLUE), ("blackout", VERMILION)]
    for objective, colour in lines:
        axes.plot(p, derivatives(objective, 1 - p, p[:, None]).d_samples[0, :, 0], color=colour)
    small = torch.linspace(0.002, 0.148, 20, dtype=torch.float64)
    pair = torch.stack([small, torch.full_like(small, 0.85)], 1)
    beside = derivatives("blackout", 1 - pair.sum(1), pair).d_samples[0, :, 0]
    axes.plot(small, beside, color=VERMILION, linestyle="--")
    axes.axhline(0, color=INK, linewidth=0.8)
    label(axes, 0.17, 0.3, "BlackOut, another\nsample has 0.85", VERMILION)
    label(axes, 0.6, -0.49, "importance\nsampling, NCE", BLUE)
    label(axes, 0.04, -1.65, "BlackOut, the target\nhas the rest", VERMILION)
    axes.set_ylim(-2.1, 0.9)
    axes.set_title("(b) push on a sample")
    axes.set_xlabel("p̃ of the sample")


def label(axes: Any, x: float, y: float, text: str, colour: str) -> None:
    """Words beside a curve, in its colour; the layout does not make room for them."""
    axes.text(x, y, text, color=colour, fontsize=9).set_in_layout(False)


# ---------------------------------------------------------------------------- the proposal


def zipf(words: int) -> Tensor:
    """Counts that fall as one over the rank."""
    return 1e6 / torch.arange(1, words + 1, dtype=torch.float64)


def proposal() -> Figure:
    """Q_alpha by rank, and which words 500 draws consist of."""
    words, samples = 64_000, 500
    rank = torch.logspace(0, math.log10(words), 60).long().unique()
    bands = [(0, 100), (100, 1000), (1000, 10_000), (10_000, words)]
    labels = ["1–100", "101–1,000", "1,001–10,000", "10,001–64,000"]
    alphas = {0.0: INK, 0.3: VERMILION, 0.6: PURPLE, 1.0: BLUE}
    figure, (curve, drawn) = panels(2, 3.2, gridspec_kw={"width_ratios": [1, 1.15]})
    for place, (alpha, colour) in enumerate(alphas.items()):
        q = UnigramProposal(zipf(words), alpha).log_q.exp()
        curve.loglog(rank, samples * q[rank - 1], color=colour, label=f"α = {alpha:g}")
        left = 0.0
        for (start, end), shade in zip(bands, (1.0, 0.7, 0.42, 0.2), strict=True):
            share = float(q[start:end].sum()) * samples
            drawn.barh(place, share, left=left, color=BLUE, alpha=shade, height=0.7)
            if share > 22:
                ink = "white" if shade > 0.6 else INK
                centre = left + share / 2
                drawn.text(centre, place, f"{share:.0f}", ha="center", va="center", color=ink)
            left += share
    curve.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    label(curve, 700, 0.4, "once in every set", INK)
    curve.set_title("(a) how often each word is drawn")
    curve.set_xlabel("rank of the word by frequency")
    curve.set_ylabel(f"times in {samples} draws, K·Q(w)")
    curve.set_ylim(3e-4, 1e3)
    curve.minorticks_off()
    curve.legend(loc="upper right", labelspacing=0.2)
    curve.grid()
    drawn.set_yticks(range(len(alphas)), [f"α = {alpha:g}" for alpha in alphas])
    drawn.invert_yaxis()
    drawn.set_title(f"(b) who the {samples} are")
    drawn.set_xlabel("draws, by the rank of the word")
    handles = [Patch(color=BLUE, alpha=shade, linewidth=0) for shade in (1.0, 0.7, 0.42, 0.2)]
    figure.legend(handles, labels, loc="outside lower right", ncols=4, fontsize=8.5)
    drawn.tick_params(axis="y", length=0)
    drawn.spines["left"].set_visible(False)
    return figure


# ---------------------------------------------------------------------------- where training ends


def learned(
    truth: Tensor, q: Tensor, samples: int, objective: Objective, copies: bool, pairs: int = 50_000
) -> Tensor:
    """The probabilities that maximise the mean of J over many (target, samples) of one context."""
    source = torch.Generator().manual_seed(1)
    target = truth.multinomial(pairs, True, generator=source)
    drawn = q.multinomial(pairs * samples, True, generator=source).view(pairs, samples)
    offset = q.log() + (math.log(samples) if objective == "nce" else 0.0)
    logits = torch.zeros_like(truth, requires_grad=True)
    search = torch.optim.LBFGS(
        [logits], max_iter=60, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        z = logits.detach() - offset
        z_samples = z[drawn]
        if not copies:
            z_samples.masked_fill_(drawn == target[:, None], -math.inf)
        value, d_target, d_samples = OBJECTIVES[objective](z[target], z_samples)
        step = torch.zeros_like(z).index_add_(0, target, d_target)
        step.index_add_(0, drawn.flatten(), d_samples.nan_to_num().flatten())
        logits.grad = -step / pairs
        return -float(value.mean())

    search.step(closure)
    return logits.detach().softmax(0)


def optimum() -> Figure:
    """How far from the truth the best logits of each objective are, in one context."""
    words, samples, alphas = 50, 10, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    unigram = zipf(words) / zipf(words).sum()
    truth = 0.5 * unigram
    truth[0] += 0.5  # a context after which the most frequent word is likely
    lines: list[tuple[str, Objective, bool, str, str]] = [
        ("BlackOut", "blackout", False, VERMILION, "-"),
        ('BlackOut, negatives="nce"', "blackout-noise", False, ORANGE, "-"),
        ("importance sampling", "sampled", False, BLUE, "-"),
        ("NCE", "nce", True, GREEN, "-"),
        ("BlackOut, copies of the target kept", "blackout", True, INK, "--"),
    ]
    figure, (top, excess) = panels(2, 3.2)
    for label, objective, copies, colour, style in lines:
        look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3.5}
        found = []
        for alpha in alphas:
            q = UnigramProposal(zipf(words), alpha).log_q.exp()
            found.append(learned(truth, q, samples, objective, copies))
        top.plot(alphas, [float(p[0]) for p in found], label=label, **look)
        over = [100 * math.expm1(float((truth * (truth / p).log()).sum())) for p in found]
        excess.plot(alphas, over, **look)
    top.axhline(float(truth[0]), color=GREY, linewidth=6, alpha=0.4, zorder=0)
    top.annotate("truth", (0.02, float(truth[0]) - 0.035), color=GREY)
    top.set_ylim(0.5, 1)
    top.set_title("(a) the likeliest word")
    top.set_ylabel("probability at the optimum")
    excess.set_title("(b) the whole distribution")
    excess.set_ylabel("perplexity above the best, %")
    for axes in (top, excess):
        axes.set_xlabel("α of the proposal")
        axes.grid()
    top.legend(loc="upper left", fontsize=8.5)
    return figure


# ---------------------------------------------------------------------------- the optimiser


def aging() -> Figure:
    """The second moment of a rare row, as dense RMSProp has it and as the three rules keep it."""
    steps, rate = 16_000, 1 / 400
    source = torch.Generator().manual_seed(4)
    touched = (torch.rand(steps, generator=source) < rate).nonzero()[:, 0]
    figure, (axes,) = panels(1, 3.0)
    shown = range(0, steps, 20)
    axes.plot(shown, dense_moment(touched, steps)[::20], color=GREY, linewidth=1.2)
    looks = {"none": (BLUE, "s"), "paper": (PURPLE, "^"), "exact": (VERMILION, "o")}
    for decay, (colour, marker) in looks.items():
        kept = row_moments(touched, decay, rate)
        axes.plot(touched, kept, marker, color=colour, markersize=4, label=f'decay="{decay}"')
    axes.plot([], [], color=GREY, linewidth=1.2, label="dense RMSProp")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(4e-4, 1e-1)
    axes.set_xlim(0, steps)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("step; the row is touched in one of 400")
    axes.set_ylabel("second moment v of its weights")
    axes.grid()
    axes.legend(ncols=4, loc="upper center", fontsize=8.5, handletextpad=0.3)
    return figure


def row_moments(touched: Tensor, decay: Any, rate: float) -> list[float]:
    """v of a row after each step that touches it with gradient 1."""
    table = torch.nn.Parameter(torch.zeros(2, 1))
    group = {"params": [table], "update_rate": torch.full((2,), rate)}
    optimizer = blackout.RMSProp(
        [group], lr=1e-6, beta=0.999, decay=decay, damping=1e-12, correct_bias=False, by_width=False
    )
    gradient = torch.tensor([[1.0], [0.0]]).to_sparse(1)
    moments, step = [], 0
    for moment_of_touch in touched.tolist():
        state = optimizer.init_state(table, sparse=True)
        state["step"] += moment_of_touch - step  # the steps in between touch other rows
        step = moment_of_touch + 1
        table.grad = gradient.clone()
        optimizer.step()
        moments.append(float(state["moment"][0, 0]))
    return moments


def dense_moment(touched: Tensor, steps: int, beta: float = 0.999) -> Tensor:
    """v after every step by its definition."""
    square = torch.zeros(steps, dtype=torch.float64)
    square[touched] = 1.0
    moment, value = torch.empty_like(square), 0.0
    for step in range(steps):
        value = beta * value + (1 - beta) * float(square[step])
        moment[step] = value
    return moment


# ---------------------------------------------------------------------------- the program

PICTURES = {f.__name__: f for f in (lineup, gradient, proposal, optimum, aging)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(PICTURES)}; all by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures")
    parser.add_argument("--format", default="svg", help="svg, or png to look at")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or PICTURES:
        path = options.out / f"{name}.{options.format}"
        with rc_context(STYLE):
            metadata = {"Date": None} if options.format == "svg" else {}
            PICTURES[name]().savefig(path, metadata=metadata, dpi=110)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
