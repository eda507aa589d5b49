"""The last blocks of an epoch, where streams come to their end one after another."""

import torch

from blackout.run_folder import RunFolder
from blackout.text.streams import Block
from blackout.train.loop import Trainer
from blackout.train.progress import Progress


def test_a_word_weighs_the_same_in_a_nearly_empty_block(lab, tmp_path, monkeypatch):
    """The gradient of one word among padding is a B·T-th of its own, not all of it."""
    trainer = Trainer(
        lab.config(loss="full"), lab.data, RunFolder(tmp_path / "out"), False, Progress()
    )
    gradients = {}
    monkeypatch.setattr(
        trainer.optimizer,
        "step",
        lambda: gradients.update(
            {name: p.grad.to_dense().clone() for name, p in trainer.model.named_parameters()}
        ),
    )
    block = next(iter(_streams(trainer)))
    mask = block.mask.copy()
    mask[:] = False
    mask[0, 0] = True
    trainer._train_block(Block(block.inputs, block.targets, mask, 1))
    alone = dict(gradients)

    trainer.state = trainer.model.initial_state(mask.shape[1])
    hidden, _ = trainer.model(torch.from_numpy(block.inputs), trainer.state)
    word = trainer.model.output.objective(hidden, torch.from_numpy(block.targets))[0, 0]
    trainer.model.zero_grad()
    (-word / mask.size).backward()
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(alone[name], p.grad.to_dense(), rtol=1e-5, atol=1e-8)


def _streams(trainer):
    from blackout.text.streams import Streams

    run = trainer.config.run
    return Streams(trainer.data.shard("train"), run.batch, run.bptt, shuffle=False, seed=1, epoch=0)
