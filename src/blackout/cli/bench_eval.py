"""``blackout bench eval``: the speed of exact evaluation on made-up words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from blackout import losses
from blackout.cli.bench_train import show
from blackout.cli.common import Output, parse
from blackout.config import Cell, Config, check_whole
from blackout.losses import LossName
from blackout.memory import scoring_need


@dataclass
class BenchEvalOptions:
    """Speed of exact evaluation: blackout bench eval --vocab-size 64000 --hidden 256"""

    vocab_size: int = 64000
    """V, words."""
    hidden: int = 256
    """h, units."""
    cell: Cell = "sigmoid"
    """The recurrent unit."""
    loss: LossName = losses.DEFAULT
    """The output layer; those of sampled losses all score alike."""
    maxent: int = 0
    """Hashed n-gram features of so many words before the target."""
    maxent_bits: int = 22
    """With maxent: they lie in 2 to this power numbers."""
    words: int = 0
    """Words scored together; 0 for 8,192, on a GPU 32,768 as in evaluation."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the matrix products."""
    storage: Literal["fp32", "bf16"] = "fp32"
    """Number format of the word tables."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where to compute; auto is a GPU where there is one."""
    impl: Literal["auto", "native", "triton", "reference"] = "auto"
    """Native code for the CPU, Triton kernels for a GPU, or plain PyTorch."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    seconds: float = 10.0
    """How long to measure."""
    profile: bool = False
    """Also print where the time goes."""
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(BenchEvalOptions, "bench eval", arguments)
    config = Config.from_dict(
        {
            "model": {"hidden": options.hidden, "cell": options.cell, "storage": options.storage},
            "loss": {
                "loss": options.loss,
                "maxent": options.maxent,
                "maxent_bits": options.maxent_bits,
            },
            "run": {"precision": options.precision},
        },
        "bench eval",
    )
    check_whole("vocab_size", options.vocab_size, 3)
    if options.words:
        check_whole("words", options.words, 32)

    from blackout.bench.measure import EvaluationBench  # PyTorch comes with it
    from blackout.bench.profile import profile
    from blackout.runtime import choose_device, require_memory, set_threads
    from blackout.score.perplexity import scored_at_once

    device = choose_device(options.device)
    require_memory(scoring_need(config, options.vocab_size, "this benchmark"), device)
    threads = set_threads(options.threads)
    words = options.words or scored_at_once(device)
    bench = EvaluationBench(config, options.vocab_size, options.impl, words, device.type)
    speed = bench.measure(options.seconds)
    show(options.output, speed, threads)
    if options.profile:
        options.output.say(f"\nms/{bench.words} words  calls  what")
        for name, spent, calls in profile(bench.score, device, 3):
            options.output.say(f"{spent:8.2f}  {calls:5.0f}  {name}")
    options.output.result({**speed.to_dict(), "threads": threads})
