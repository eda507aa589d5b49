"""Without native code: layers, optimisers and models work in plain PyTorch, the rest says so."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

# run here with native code, and in a process without
TRAINING = """
import torch, blackout
torch.set_num_threads(1)
losses = {}
for kind in (blackout.BlackOut, blackout.NCE, blackout.Sampled, blackout.Full):
    for optimiser in (blackout.RMSProp, blackout.Adagrad, blackout.Adam):
        torch.manual_seed(1)
        body = torch.nn.Linear(4, 8)
        more = {} if kind is blackout.Full else {"samples": 6}
        head = kind(8, 30, **more)
        optimizer = optimiser([*body.parameters(), *head.parameters()], lr=0.05, clip=1.0)
        inputs, target = torch.randn(16, 4), torch.arange(16)
        for _ in range(5):
            optimizer.zero_grad()
            head(body(inputs), target).loss.backward()
            optimizer.step()
        head.eval()
        losses[f"{kind.__name__} {optimiser.__name__}"] = head(body(inputs), target).loss.item()
"""
PROGRAM = f"""
import json, sys
sys.modules["blackout._native"] = None  # as if it had never been built
{TRAINING}
from blackout.cli.main import main
from blackout.errors import UserError
try:
    blackout.BlackOut(8, 30, samples=5, impl="native")(torch.randn(2, 8), torch.tensor([1, 2]))
except UserError as error:
    refused = str(error)

model, text = sys.argv[1:]
statuses = {{
    "generate": main(["generate", model, "--words", "3"]),
    "eval": main(["eval", model, text]),
    "ngram train": main(["ngram", "train", "--train", text, "--out", text + ".arpa"]),
    "train": main(["train", "--train", text, "--valid", text, "--out", text + ".run"]),
}}
print(json.dumps({{"losses": losses, "refused": refused, "statuses": statuses}}))
"""


def test_what_works_and_what_says_so(lab, tmp_path):
    lab.train(tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("the cat\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), str(text)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    native: dict[str, Any] = {}
    exec(TRAINING, native)
    assert len(found["losses"]) == 12
    assert found["losses"] == pytest.approx(native["losses"], rel=1e-3)
    assert found["refused"] == 'impl "native": this installation has no native code'
    needing = ("eval", "ngram train", "train")
    assert found["statuses"] == {"generate": 0} | dict.fromkeys(needing, 1)
    lines = [line for line in done.stderr.splitlines() if "native code" in line]
    assert [line.split(":")[0] for line in lines] == [f"blackout {verb}" for verb in needing]
