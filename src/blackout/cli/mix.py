"""``blackout mix MODEL X.arpa --tune VALID --test TEST``: models mixed, their weights by EM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from blackout.cli.common import Computing, Output, open_for_writing, parse
from blackout.cli.on_ranks import is_first
from blackout.config import ReadingConfig
from blackout.errors import UserError
from blackout.run_folder import RunFolder

if TYPE_CHECKING:
    from blackout.mixture.arithmetic import Fit, Floats
    from blackout.mixture.evaluate import Mixed
    from blackout.mixture.mixture import Mixture


@dataclass
class MixOptions:
    """Mix language models: blackout mix MODEL X.arpa --tune VALID --test TEST

    P(w) is the weighted sum of the models' probabilities, over the n-gram's vocabulary; the
    weights are those under which the tuning text is most probable (EM). The <unk> of a network
    with fewer words is spread over the words it lacks.
    """

    models: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of networks and files of n-grams (ARPA text or the binary form)."""
    tune: Path | None = None
    """Text to find the weights on, never the test text."""
    test: Path | None = None
    """Text to report the perplexity of."""
    tune_probs: tuple[Path, ...] = ()
    """Per-word dumps of the tuning text, "word<TAB>log10-probability" a line: more components."""
    test_probs: tuple[Path, ...] = ()
    """The dumps of the test text by the same models, in the same order."""
    weights: tuple[float, ...] = ()
    """Take these weights instead of tuning: one for each model, then one for each dump."""
    unknown: Literal["unigram", "uniform"] = "unigram"
    """How a network's <unk> is spread over the words outside its shortlist."""
    probs: Path | None = None
    """Write "word<TAB>log10-probability" of the mixture for each word of the test text."""
    report: Path | None = None
    """Page with the plot of perplexity against the weight; by default mix.html in the folder of
    the first network."""
    computing: Computing = field(default_factory=Computing)
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    output: Output = field(default_factory=Output)


def main(arguments: Sequence[str]) -> None:
    options = parse(MixOptions, "mix", arguments)
    check(options)
    networks = [path for path in options.models if path.is_dir()]
    if networks:
        about = RunFolder(networks[0]).description()
        as_in_training = MixOptions(reading=ReadingConfig(**about.config.text.reading()))
        options = parse(MixOptions, "mix", arguments, default=as_in_training)
    run(options, load_mixture(options))


def check(options: MixOptions) -> None:
    """Refuses a command line that cannot work, before anything is loaded."""
    if not options.weights and len(options.tune_probs) != len(options.test_probs):
        raise UserError(
            f"{len(options.tune_probs)} tune-probs but {len(options.test_probs)} test-probs: "
            "every dump needs its other half"
        )
    count = len(options.models) + len(options.test_probs)
    if count < 2:
        raise UserError("two or more models, n-grams or dumps are needed to mix")
    for path in options.models:
        if not path.exists():
            raise UserError(f"{path}: no such model folder or n-gram file")
    if options.models and options.test is None:
        raise UserError("test: the text to report the perplexity of is missing")
    if options.models and options.tune is None and not options.weights:
        raise UserError("tune: the text to find the weights on is missing")


def load_mixture(options: MixOptions) -> Mixture:
    """The models of the command line, over the vocabulary they are mixed over."""
    from blackout.mixture.mixture import Mixture
    from blackout.ngram import NGram

    models = [
        (str(path), options.computing.load(path) if path.is_dir() else NGram.load(path))
        for path in options.models
    ]
    return Mixture(
        models,
        unknown=options.unknown,
        reading=options.reading,
        threads=options.computing.threads,
    )


def run(options: MixOptions, mixture: Mixture) -> None:
    """Finds the weights, scores the test text and says so."""
    from blackout.mixture.arithmetic import Fit, check_weights

    names = [component.name for component in mixture.components]
    names += [str(path) for path in options.test_probs]
    kinds = [component.kind for component in mixture.components]
    kinds += ["dump"] * len(options.test_probs)
    if options.weights:
        fit, tuning = Fit(check_weights(options.weights, len(names)), 0), None
    else:
        fit, tuning = mixture.tune(options.tune, options.tune_probs)
    with open_for_writing(options.probs) as dump:
        result = mixture.evaluate(options.test, fit.weights, options.test_probs, dump)
    tell(options.output, names, fit, result)
    report = None if tuning is None else write_report(options, names, kinds, fit, tuning, result)
    if report is not None:
        options.output.say(f"report          {report}")
    options.output.result(
        {
            "weight": float(fit.weights[0]),
            "weights": fit.weights.tolist(),
            "iterations": fit.iterations,
            "perplexity": result.perplexity,
            "perplexity_without_unk": result.perplexity_without_unk,
            "model_perplexity": _first(kinds, result, "network", "dump"),
            "ngram_perplexity": _first(kinds, result, "n-gram"),
            "words": result.words,
            "sentence_ends": result.sentence_ends,
            "unknown": result.unknown,
            "impossible": result.impossible,
            "components": [
                {
                    "name": name,
                    "kind": kind,
                    "weight": float(fit.weights[i]),
                    "perplexity": result.component_perplexities[i],
                    "perplexity_without_unk": result.component_perplexities_without_unk[i],
                }
                for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
            ],
            "report": None if report is None else str(report),
        }
    )


def _first(kinds: list[str], result: Mixed, *wanted: str) -> float | None:
    """Perplexity of the first component of a kind."""
    for kind in wanted:
        if kind in kinds:
            return result.component_perplexities[kinds.index(kind)]
    return None


def tell(output: Output, names: list[str], fit: Fit, result: Mixed) -> None:
    """The figures, for people."""
    width = max(len("mixture"), *map(len, names))
    output.say(f"{'':<{width}} {'weight':>8} {'perplexity':>12} {'without <unk>':>14}")
    rows = zip(
        names,
        fit.weights.tolist(),
        result.component_perplexities,
        result.component_perplexities_without_unk,
        strict=True,
    )
    for name, weight, perplexity, known in rows:
        output.say(f"{name:<{width}} {weight:>8.4f} {perplexity:>12.2f} {known:>14.2f}")
    output.say(
        f"{'mixture':<{width}} {'':>8} {result.perplexity:>12.2f} "
        f"{result.perplexity_without_unk:>14.2f}"
    )
    output.say(
        f"\nwords           {result.words:,} ({result.unknown:,} unknown), "
        f"{result.sentence_ends:,} sentence ends"
    )
    if result.impossible:
        output.say(f"impossible      {result.impossible:,} words: no model gives them probability")
    if fit.iterations:
        output.say(f"weights         after {fit.iterations} iterations of EM")


def write_report(
    options: MixOptions,
    names: list[str],
    kinds: list[str],
    fit: Fit,
    tuning: Floats,
    result: Mixed,
) -> Path | None:
    """Writes the page where it was asked for, or into the first network's folder."""
    from blackout.pages.mixture_report import write_mix_report

    if not is_first():
        return None
    path = options.report
    if path is None and "network" in kinds:
        path = options.models[kinds.index("network")] / "mix.html"
    if path is None:
        return None
    try:
        return write_mix_report(path, names, fit, tuning, result)
    except UserError as error:
        if options.report is not None:
            raise
        options.output.say(f"no report: {error}")  # a folder we may not write to is no fault
        return None
