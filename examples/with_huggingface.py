"""A Hugging Face model over 200,000 words, trained with BlackOut under Trainer.

    pip install 'blackout-lm[huggingface]'
    python examples/with_huggingface.py

A small GPT-2 with tied tables, on made-up sequences. ``use_blackout`` changes its loss; training,
saving, loading and generating stay what they were. The gradients of the word tables are row-sparse;
our ``Trainer`` differs from theirs in that it clips them and has an optimiser that takes them.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from blackout.integrations.huggingface import from_pretrained, use_blackout
from blackout.integrations.huggingface.trainer import Trainer
from sessions import Sessions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--sequences", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--folder", default="huggingface_run")
    options = parser.parse_args()
    torch.manual_seed(0)

    sessions = Sessions.made_up(options.words, options.sequences)
    rows = [{"input_ids": row, "labels": row} for row in sessions.histories]
    config = GPT2Config(
        vocab_size=options.words + 1,
        n_positions=32,
        n_embd=64,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = use_blackout(GPT2LMHeadModel(config), samples=500, counts=sessions.counts())
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=options.folder,
            max_steps=options.steps,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=32,
            learning_rate=0.001,
            max_grad_norm=1.0,
            prediction_loss_only=True,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows[:-500],
        eval_dataset=rows[-500:],
    )
    before = trainer.evaluate()["eval_loss"]
    trained = trainer.train()
    after = trainer.evaluate()["eval_loss"]  # exact, over all words
    words = trained.metrics["train_samples_per_second"] * len(rows[0]["labels"])
    print(f"loss {before:.3f} (log V is {math.log(options.words):.3f}) -> {after:.3f}")
    print(f"{words:,.0f} words/s")

    trainer.save_model(options.folder)
    again = from_pretrained(options.folder).eval()
    prompt = torch.from_numpy(np.stack(sessions.histories[:2]))[:, :5]
    made = [m.generate(prompt, max_new_tokens=5, do_sample=False) for m in (model.eval(), again)]
    print(f"{made[0][0].tolist()}; loaded again, the same: {torch.equal(*made)}")


if __name__ == "__main__":
    main()
