"""``blackout rescore MODEL NBEST``: new language model scores for a recogniser's hypotheses."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from blackout.cli.common import Computing, Output, parse
from blackout.cli.on_ranks import is_first
from blackout.cli.stages import Stages
from blackout.errors import UserError
from blackout.rescore.formats import read_nbest, write_best, write_nbest
from blackout.rescore.nbest import NBest
from blackout.rescore.weights import Weights, load_weights, save_weights

if TYPE_CHECKING:
    from blackout.rescore.score import ScoredLists


@dataclass
class RescoreOptions:
    """Scores n-best lists with a model: blackout rescore MODEL NBEST --out NEW --best TEXT"""

    model: Annotated[Path, tyro.conf.Positional]
    """Folder of a model or a run."""
    nbest: Annotated[Path, tyro.conf.Positional]
    """The lists: a file or a folder."""
    format: Literal["auto", "kaldi", "srilm", "espnet", "jsonl"] = "auto"
    """Their format."""
    log_base: Literal["auto", "e", "10"] = "auto"
    """Base of the scores in the lists, read and written: 10 for srilm, else e, unless given."""
    am_scores: Path | None = None
    """Kaldi's archive of acoustic costs, where NBEST is the archive of words."""
    lm_scores: Path | None = None
    """Kaldi's archive of language model costs, where NBEST is the archive of words."""
    out: Path | None = None
    """Write the lists with their new scores here, in the same format."""
    best: Path | None = None
    """Write the best hypothesis of each utterance here, a line "utterance words…"."""
    ngram: Path | None = None
    """Mix with this n-gram, ARPA or binary form."""
    unnormalised: bool = False
    """Score without the sum over the vocabulary, with a model that normalises itself (losses
    self-normalised and nce); how far off that is stands beside."""
    weights: Weights = field(default_factory=Weights)
    refs: Path | None = None
    """References, a line "utterance words…": tunes the weights, gives word error rates."""
    tune: bool = True
    """With --refs: tune the weights on these lists, or (--no-tune) only count errors."""
    save_weights: Path | None = None
    """Write the weights to this file."""
    load_weights: Path | None = None
    """Take the weights from this file; those on the command line come first."""
    computing: Computing = field(default_factory=Computing)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(RescoreOptions, "rescore", arguments)
    if options.load_weights is not None:
        default = RescoreOptions(
            model=tyro.MISSING, nbest=tyro.MISSING, weights=load_weights(options.load_weights)
        )
        options = parse(RescoreOptions, "rescore", arguments, default=default)
    check_options(options)
    nbest = read_nbest(
        options.nbest,
        None if options.format == "auto" else options.format,
        log_base=None if options.log_base == "auto" else options.log_base,
        acoustic=options.am_scores,
        lm=options.lm_scores,
    )
    scored, seconds = _score(options, nbest)
    weights: Weights = options.weights
    rates: dict[str, Any] = {}
    if options.refs is not None:
        weights, rates = _against_references(options, nbest, scored)
    _write(options, nbest, scored, weights)
    result: dict[str, Any] = {
        "format": nbest.format,
        "utterances": len(nbest.utterances),
        "hypotheses": len(scored.words),
        "words": int(scored.words.sum()),
        "unknown": int(scored.unknown.sum()),
        "distinct": scored.pairs,
        "words_per_second": len(scored.network) / max(seconds, 1e-9),
        "weights": dataclasses.asdict(weights),
        **rates,
    }
    if scored.errors is not None:
        result["log_z_mean"], result["log_z_spread"] = scored.errors.mean, scored.errors.spread
        result["log_z_words"] = scored.errors.words
    _show(options, result)
    options.output.result(result)


def check_options(options: RescoreOptions) -> None:
    """What can be refused before anything is read."""
    if options.unnormalised and options.ngram is not None:
        raise UserError("--unnormalised: a mixture with --ngram needs probabilities")
    if not options.model.is_dir():
        raise UserError(f"{options.model}: no such model folder")
    if options.out is not None and options.out.resolve() == options.nbest.resolve():
        raise UserError(f"--out {options.out} is the list that is read")


def _score(options: RescoreOptions, nbest: NBest) -> tuple[ScoredLists, float]:
    """The scores, and the seconds they took without the loading of the models."""
    from blackout.ngram import NGram
    from blackout.rescore.score import score_lists  # PyTorch comes with it

    model = options.computing.load(options.model)
    ngram = None if options.ngram is None else NGram.load(options.ngram)
    started = time.perf_counter()
    with Stages() as stages:
        scored = score_lists(
            model,
            nbest,
            ngram,
            unnormalised=options.unnormalised,
            progress=lambda done, total: stages("scoring", done, total),
        )
    return scored, time.perf_counter() - started


def _against_references(
    options: RescoreOptions, nbest: NBest, scored: ScoredLists
) -> tuple[Weights, dict[str, Any]]:
    """The weights, tuned unless that is not wanted, and word error rates before and after."""
    from blackout.rescore.tune import count_errors, read_references, tune

    assert options.refs is not None
    errors = count_errors(nbest, read_references(options.refs), options.refs)
    weights = tune(scored, errors, options.weights) if options.tune else options.weights

    def rate(weights: Weights) -> float:
        return errors.rate(scored.best(scored.totals(weights)))

    return weights, {
        "reference_words": errors.words,
        "wer_listed": errors.listed,
        "wer_before": rate(options.weights),
        "wer": rate(weights),
        "wer_oracle": errors.oracle,
    }


def _write(options: RescoreOptions, nbest: NBest, scored: ScoredLists, weights: Weights) -> None:
    from blackout.rescore.score import set_scores

    set_scores(nbest, scored, weights)
    if not is_first():
        return
    if options.out is not None:
        write_nbest(nbest, options.out)
    if options.best is not None:
        write_best(nbest, options.best)
    if options.save_weights is not None:
        save_weights(weights, options.save_weights)


def _show(options: RescoreOptions, result: dict[str, Any]) -> None:
    say = options.output.say
    say(f"utterances      {result['utterances']:,} ({result['format']})")
    say(
        f"hypotheses      {result['hypotheses']:,} of {result['words']:,} words "
        f"({result['unknown']:,} unknown)"
    )
    say(f"distinct        {result['distinct']:,} words after their prefixes")
    say(f"speed           {result['words_per_second']:,.0f} words/s")
    if "log_z_words" in result:
        say(
            f"log Z           {result['log_z_mean']:.4f} ± {result['log_z_spread']:.4f}, the "
            f"scores' error in log-probability over {result['log_z_words']:,} words"
        )
    for name, value in result["weights"].items():
        if name != "weight" or options.ngram is not None:
            say(f"{name:<15} {value:.6g}")
    if "wer" in result:
        say(f"word errors     {result['wer']:.2%} of {result['reference_words']:,} words")
        say(f"  first listed  {result['wer_listed']:.2%}")
        if options.tune:
            say(f"  before tuning {result['wer_before']:.2%}")
        say(f"  oracle        {result['wer_oracle']:.2%}")
