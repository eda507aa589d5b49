"""What the factors of a spherical layer do over very many updates, beside its dense form.

    python benchmarks/spherical_drift.py --updates 1000000

Prints, ten times on the way: the largest and smallest singular value of U, how often values were
moved into the table, how far Q has drifted from WᵀW, how far the probabilities of a state are from
adding up to one with it, and how far W is from that of dense SGD in float64.
"""

import argparse

import torch

from blackout.output import Spherical


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layer = Spherical(options.hidden, options.classes, lr=options.lr)
    truth = torch.rand(64, options.hidden) + 0.5
    likely = torch.distributions.Dirichlet(torch.full((options.classes,), 0.1)).sample((64,))
    dense, moved, every = layer.weight.double(), 0, max(1, options.updates // 10)
    balance = layer.balance

    def counted(*given: float) -> int:
        nonlocal moved
        moved += (found := balance(*given))
        return found

    layer.balance = counted  # type: ignore[method-assign]
    print("updates  U largest  smallest  moved  drift of Q  of the sum  of W")
    for number in range(1, options.updates + 1):
        which = torch.randint(64, (8,))
        states, target = truth[which], torch.multinomial(likely[which], 1)[:, 0]
        layer.learn(states, target, torch.full((8,), -1 / 8))
        dense = dense_step(dense, states.double(), target, options.lr / 8, layer.epsilon)
        if number % every == 0:
            values = torch.linalg.svdvals(layer.mix.double())
            weight = layer.weight.double()
            gram = weight.mT @ weight
            off = (layer.gram - gram).norm() / gram.norm()
            total = (layer.log_prob(truth[:1]).double().exp().sum() - 1).abs()
            away = (weight - dense).norm() / dense.norm()
            print(
                f"{number:7,}  {values.max():9.3g}  {values.min():8.3g}  {moved:5,}  {off:10.1e}"
                f"  {total:10.1e}  {away:.1e}",
                flush=True,
            )


def dense_step(
    weight: torch.Tensor, states: torch.Tensor, target: torch.Tensor, lr: float, epsilon: float
) -> torch.Tensor:
    """Plain SGD on the whole table."""
    logits = states @ weight.mT
    total = logits.square().sum(1) + len(weight) * epsilon
    own = logits.gather(1, target[:, None])[:, 0]
    slope = logits * (2 / total)[:, None]
    slope = slope.scatter_add(1, target[:, None], -(2 * own / (own.square() + epsilon))[:, None])
    return weight - lr * slope.mT @ states


if __name__ == "__main__":
    main()
