"""``blackout bench train``: the speed of training on made-up words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from blackout import losses
from blackout.cli.common import Output, parse
from blackout.cli.on_ranks import join
from blackout.config import Cell, Config, check_whole
from blackout.losses import LossName
from blackout.memory import training_need

if TYPE_CHECKING:
    from blackout.bench.measure import Speed
    from blackout.ranks import Ranks


@dataclass
class BenchTrainOptions:
    """Speed and memory of training: blackout bench train --vocab-size 64000 --hidden 256

    Operations per word count the matrix products alone; the machine's matrix rate, of float32 on a
    CPU, is measured in the same run on the same shapes. On a GPU also what the bare products, and
    the traffic of the rows touched, would allow.
    """

    vocab_size: int = 64000
    """V, words."""
    hidden: int = 256
    """h, units."""
    samples: int = 500
    """K, samples."""
    alpha: float = 1.0
    """Power of the unigram distribution words are drawn from; below 1 more rows are touched."""
    batch: int = 128
    """B, streams."""
    bptt: int = 20
    """T, time steps of a block."""
    loss: LossName = losses.DEFAULT
    """The output layer and its training loss."""
    maxent: int = 0
    """Hashed n-gram features of so many words before the target."""
    maxent_bits: int = 22
    """With maxent: they lie in 2 to this power numbers."""
    cell: Cell = "sigmoid"
    """The recurrent unit."""
    proposal: Literal["unigram", "batch", "bigram", "model", "lsh"] = "unigram"
    """Where samples are drawn from; model, before any epoch, draws by counts."""
    sharing: Literal["step", "block", "word"] = "step"
    """Who shares a sample set."""
    collisions: Literal["keep", "remove"] = "keep"
    """Keep copies of the target among its samples, or take them out."""
    sampling: Literal["global", "strata"] | None = None
    """Draw from all words or from strata of them; None: strata on several ranks."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the matrix products."""
    storage: Literal["fp32", "bf16"] = "fp32"
    """Number format of the word tables."""
    second_moment: Literal["full", "row"] = "full"
    """A second moment for each weight of a table, or one a row."""
    decay: Literal["exact", "paper", "none"] = "exact"
    """How second moments of untouched rows age."""
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where to compute; auto is a GPU where there is one."""
    impl: Literal["auto", "native", "triton", "reference"] = "auto"
    """Native code for the CPU, Triton kernels for a GPU, or plain PyTorch."""
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
                "loss": {
                    "loss": self.loss,
                    "samples": self.samples,
                    "proposal": self.proposal,
                    "sharing": self.sharing,
                    "alpha": self.alpha,
                    "collisions": self.collisions,
                    "sampling": self.sampling,
                    "maxent": self.maxent,
                    "maxent_bits": self.maxent_bits,
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

    from blackout.bench.measure import TrainingBench  # PyTorch comes with it
    from blackout.bench.profile import profile
    from blackout.runtime import choose_device, require_memory, set_threads

    _, ranks = join(options.device)
    if ranks.size > 1:
        _over_ranks(options, config, ranks)
        return
    device = choose_device(options.device)
    require_memory(training_need(config, options.vocab_size), device)
    threads = set_threads(options.threads)
    bench = TrainingBench(config, options.vocab_size, options.impl, device.type)
    speed = bench.measure(options.seconds)
    show(options.output, speed, threads)
    if options.profile:
        options.output.say("\nms/block  calls  what")
        for name, spent, calls in profile(bench.train_block, device):
            options.output.say(f"{spent:8.2f}  {calls:5.0f}  {name}")
    options.output.result({**speed.to_dict(), "threads": threads})


def _over_ranks(options: BenchTrainOptions, config: Config, ranks: Ranks) -> None:
    from blackout.bench.over_ranks import measure_over_ranks
    from blackout.ranks.together import together
    from blackout.runtime import choose_device, require_memory, set_threads
    from blackout.train.on_ranks import begun_on, require_same_settings

    config, device = begun_on(ranks, config), choose_device(options.device)
    require_same_settings(ranks, config)
    need = training_need(config, options.vocab_size, ranks.size)
    together(ranks, lambda: require_memory(need, device))
    threads = set_threads(options.threads)
    speed = measure_over_ranks(
        config, options.vocab_size, ranks, options.impl, device, options.seconds
    )
    say = options.output.say
    by = f"{speed.ranks} ranks, {threads} threads each"
    say(f"words per second       {speed.words_per_second:,.0f}  ({by})")
    say(f"received a block       {speed.bytes_per_block:,} bytes a rank")
    for name, size in sorted(speed.bytes_by_exchange.items(), key=lambda item: -item[1]):
        say(f"  {name:<20} {size:,}")
    say(f"time in communication  {speed.communication_share:.0%}, waiting included")
    say(f"processor time         {speed.processor_seconds * 1e3:,.1f} ms a block and rank")
    say(f"word tables            {speed.table_bytes / 2**20:,.1f} MiB a rank")
    say(f"peak memory            {speed.peak_rss_bytes / 2**30:.2f} GiB a rank")
    options.output.result({**speed.to_dict(), "threads": threads})


def show(output: Output, speed: Speed, threads: int) -> None:
    """The figures, for people."""
    on_gpu = speed.peak_device_bytes > 0
    by = "on a GPU" if on_gpu else f"{threads} threads"
    output.say(f"words per second       {speed.words_per_second:,.0f}  ({by})")
    output.say(f"operations per word    {speed.flops_per_word / 1e6:,.3f} M")
    kind = "on the GPU" if on_gpu else "float32"
    output.say(f"matrix rate, {kind:<10}{speed.gemm_flops / 1e9:,.1f} GFLOP/s")
    output.say(f"fraction of that rate  {speed.fraction_of_gemm:.3f}")
    if not on_gpu:
        output.say(f"processor time         {speed.processor_seconds * 1e3:,.1f} ms a block")
    if speed.products_words_per_second:
        output.say(f"floor: the products    {speed.products_words_per_second:,.0f} words/s")
        output.say(f"floor: rows' traffic   {speed.traffic_words_per_second:,.0f} words/s")
    output.say(f"peak memory            {speed.peak_rss_bytes / 2**30:.2f} GiB")
    if on_gpu:
        output.say(f"peak device memory     {speed.peak_device_bytes / 2**30:.2f} GiB")
