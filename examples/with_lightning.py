"""A Lightning module with a huge softmax: row-sparse gradients, clipping, checkpoints.

    pip install 'blackout-lm[lightning]'
    python examples/with_lightning.py

Lightning needs to know one thing: ``Trainer(gradient_clip_val=...)`` calls PyTorch's clipping,
which refuses sparse gradients, so the module's hook calls ours. (``RMSProp(clip=...)`` without
``gradient_clip_val`` does the same in one pass less.)
"""

import argparse
from collections.abc import Iterator
from typing import Any

import lightning
import torch
from torch import Tensor, nn

import blackout

FEATURES, HIDDEN, BATCH = 32, 64, 256


class Batches(torch.utils.data.IterableDataset):
    """Classes are points on a sphere, an example is its class seen through noise."""

    def __init__(self, classes: int, batches: int, seed: int) -> None:
        self.batches, self.seed = batches, seed
        first = torch.Generator().manual_seed(0)
        self.prototypes = nn.functional.normalize(
            torch.randn(classes, FEATURES, generator=first), dim=1
        )
        self.frequency = 1 / torch.arange(1, classes + 1)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            target = torch.multinomial(self.frequency, BATCH, True, generator=generator)
            noise = 0.05 * torch.randn(BATCH, FEATURES, generator=generator)
            yield self.prototypes[target] + noise, target


class Classifier(lightning.LightningModule):
    def __init__(self, classes: int, lr: float = 0.002) -> None:
        super().__init__()
        self.save_hyperparameters()
        counts = 1 / torch.arange(1, classes + 1)
        self.body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.head = blackout.BlackOut(HIDDEN, classes, samples=100, counts=counts)
        self.lr = lr

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        features, target = batch
        _, loss = self.head(self.body(features), target)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        features, target = batch
        hidden = self.body(features)
        _, loss = self.head(hidden, target)  # in eval() the exact one, over all classes
        right = self.head.predict(hidden) == target
        self.log_dict({"valid_loss": loss, "accuracy": right.float().mean()}, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return blackout.RMSProp(self.parameters(), lr=self.lr)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        if gradient_clip_val:
            norm = blackout.clip_grad_norm_(self.parameters(), gradient_clip_val)
            self.log("norm", norm)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--folder", default="lightning_run")
    options = parser.parse_args()
    lightning.seed_everything(1)
    model = Classifier(options.classes)
    trainer = lightning.Trainer(
        max_epochs=1,
        gradient_clip_val=1.0,
        accelerator="cpu",
        default_root_dir=options.folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, valid = (
        torch.utils.data.DataLoader(Batches(options.classes, batches, seed), batch_size=None)
        for batches, seed in ((options.steps, 1), (4, 2))
    )
    trainer.fit(model, train, valid)
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})

    path = f"{options.folder}/classifier.ckpt"
    trainer.save_checkpoint(path)
    again = Classifier.load_from_checkpoint(path, weights_only=True).eval()
    features, _ = next(iter(valid))
    first, second = (one.head.predict(one.body(features)) for one in (model, again))
    same = torch.equal(first, second)
    print(f"loaded again, it predicts the same: {same}")


if __name__ == "__main__":
    main()
