"""``blackout bench train``: the speed of training on made-up words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from blackout import losses
from blackout.cli.common import Output, parse
from blackout.config import Cell, Config, check_whole
from blackout.losses import LossName
from blackout.memory import free_memory, require, training_need

if TYPE_CHECKING:
    from blackout.bench.measure import Speed


@dataclass
class BenchTrainOptions:
    """Speed and memory of training: blackout bench train --vocab-size 64000 --hidden 256

    Operations per word count the matrix products alone; the machine's float32 matrix rate is
    measured in the same run on the same shapes.
    """

    vocab_size: int = 64000
    """V, words."""
    hidden: int = 256
    """h, units."""
    samples: int = 500
    """K, samples."""
    batch: int = 128
    """B, streams."""
    bptt: int = 20
    """T, time steps of a block."""
    loss: LossName = losses.DEFAULT
    """The output layer and its training loss."""
    cell: Cell = "sigmoid"
    """The recurrent unit."""
    sharing: Literal["step", "block", "word"] = "step"
    """Who shares a sample set."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the matrix products."""
    storage: Literal["fp32", "bf16"] = "fp32"
    """Number format of the word tables."""
    second_moment: Literal["full", "row"] = "full"
    """A second moment for each weight of a table, or one a row."""
    decay: Literal["exact", "paper", "none"] = "exact"
    """How second moments of untouched rows age."""
    impl: Literal["auto", "native", "reference"] = "auto"
    """Native code, or plain PyTorch."""
    threads: int = 0
    """CPU threads; 0 for all cores."""
    seconds: float = 10.0
    """How long to measure."""
    profile: bool = False
    """Also print where the time of a block goes."""
    output: Output = field(default_factory=Output)

    def config(self) -> Config:
        return Config.from_dict(
            {
                "model": {
                    "hidden": self.hidden,
                    "cell": self.cell,
                    "storage": self.storage,
                    "context": "stream",
                },
                # A flat proposal touches more rows than the default one: the harder case.
                "loss": {
                    "loss": self.loss,
                    "samples": self.samples,
                    "sharing": self.sharing,
                    "alpha": 0.4,
                },
                "optim": {"second_moment": self.second_moment, "decay": self.decay},
                "run": {"batch": self.batch, "bptt": self.bptt, "precision": self.precision},
            },
            "bench train",
        )


def main(arguments: Sequence[str]) -> None:
    options = parse(BenchTrainOptions, "bench train", arguments)
    config = options.config()
    check_whole("vocab_size", options.vocab_size, 3)
    require(training_need(config, options.vocab_size), free_memory())

    from blackout.bench.measure import TrainingBench  # PyTorch comes with it
    from blackout.bench.profile import profile
    from blackout.runtime import set_threads

    threads = set_threads(options.threads)
    bench = TrainingBench(config, options.vocab_size, options.impl)
    speed = bench.measure(options.seconds)
    show(options.output, speed, threads)
    if options.profile:
        options.output.say("\nms/block  calls  what")
        for name, spent, calls in profile(bench.train_block):
            options.output.say(f"{spent:8.2f}  {calls:5.0f}  {name}")
    options.output.result({**speed.to_dict(), "threads": threads})


def show(output: Output, speed: Speed, threads: int) -> None:
    """The figures, for people."""
    output.say(f"words per second       {speed.words_per_second:,.0f}  ({threads} threads)")
    output.say(f"operations per word    {speed.flops_per_word / 1e6:,.3f} M")
    output.say(f"matrix rate, float32   {speed.gemm_flops / 1e9:,.1f} GFLOP/s")
    output.say(f"fraction of that rate  {speed.fraction_of_gemm:.3f}")
    output.say(f"peak memory            {speed.peak_rss_bytes / 2**30:.2f} GiB")
