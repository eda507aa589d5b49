"""Training for a given time instead of a number of epochs: layers compared at equal time.

The learning rate falls to 0 with the time that is left. On one thread the clock is processor time,
which other work on the machine hardly disturbs; on several it is the time of day. Evaluation is not
part of it.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackout.bench.measure import peak_rss_bytes
from blackout.config import Config
from blackout.models.language_model import LanguageModel
from blackout.models.saved import new_model
from blackout.optim import RowSparseOptimizer
from blackout.runtime import set_threads
from blackout.score.perplexity import evaluate
from blackout.text.prepared import Prepared, open_prepared
from blackout.text.streams import Streams
from blackout.train.setup import build_optimizer
from blackout.train.step import BlockShape, TrainingStep, make_step
from blackout.train.training_text import follow_model, read_training_text


@dataclass(frozen=True)
class TimedRun:
    """What training for some seconds came to."""

    seconds: float
    words: int
    valid_perplexity: float
    test_perplexity: float
    scored_per_second: float
    """Words a second of exact scoring."""
    peak_bytes: int


def train_for(config: Config, data: Path, seconds: float, *, apart: bool = True) -> TimedRun:
    """Trains with these settings on a folder of ``blackout prepare`` for so many seconds.

    ``apart``: in a process of its own, whose memory is then this run's alone.
    """
    if not apart:
        return _train_for(config.to_dict(), str(data), seconds)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(_train_for, config.to_dict(), str(data), seconds).result()


def _train_for(settings: dict[str, Any], folder: str, seconds: float) -> TimedRun:
    config, data = Config.from_dict(settings), open_prepared(folder)
    threads = set_threads(config.run.threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    model = new_model(config, data.vocab).train()
    read_training_text(model, data.shard("train"))
    optimizer = build_optimizer(config, model, data.vocab.counts)
    step = make_step(model, optimizer, BlockShape(config.run.bptt, config.run.batch))
    words, spent, epoch = 0, 0.0, 0
    while spent < seconds:
        if epoch:
            follow_model(model, data.shard("train"), config.run.seed, epoch)
            model.train()
        more, spent = _epoch(config, data, model, optimizer, step, epoch, spent, seconds, clock)
        words, epoch = words + more, epoch + 1
    model.eval()
    begun = clock()
    valid = evaluate(model, data.shard("valid"))
    scored = (valid.words + valid.sentence_ends) / (clock() - begun)
    test = evaluate(model, data.shard("test"))
    return TimedRun(spent, words, valid.perplexity, test.perplexity, scored, peak_rss_bytes())


def _epoch(
    config: Config,
    data: Prepared,
    model: LanguageModel,
    optimizer: RowSparseOptimizer,
    step: TrainingStep,
    epoch: int,
    spent: float,
    seconds: float,
    clock: Any,
) -> tuple[int, float]:
    """One pass over the text, or its beginning: the words trained and the time spent so far."""
    run, carried = config.run, config.model.context == "stream"
    streams = Streams(
        data.shard("train"),
        run.batch,
        run.bptt,
        shuffle=run.shuffle and not carried,
        seed=run.seed,
        epoch=epoch,
        contiguous=carried,
    )
    step.state = model.initial_state(run.batch)
    words, mark = 0, clock()
    for block in streams:
        for group in optimizer.param_groups:
            group["lr"] = group["first_lr"] * (1 - spent / seconds)
        step.train(block)
        words += block.words
        now = clock()
        spent, mark = spent + (now - mark), now
        if spent >= seconds:
            break
    step.results()
    return words, spent
