"""Every setting of a run, as frozen dataclasses: one per part, TOML in and out.

A run is described by one :class:`Config`. Its parts are the tables of ``run.toml``;
the command line has the same names as flat options. An unknown key, a value of the wrong type
and a value out of range are errors that name the key.

>>> config = Config.from_toml('[loss]\\nsamples = 50\\nalpha = 0.3\\n')
>>> config.loss.samples, config.model.cell
(50, 'gru')
>>> Config.from_toml(config.to_toml()) == config
True
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from blackout import losses
from blackout.errors import UserError
from blackout.losses import LossName
from blackout.presets import Preset, over_preset

Cell = Literal["sigmoid", "tanh", "relu", "lstm", "gru"]


# The most that settings may be: above it stands a mistake or a trap, not a wish. What lies below
# may still be too much for a machine; blackout.memory tells, before memory is asked for.
MOST = {
    "vocab_size": 1_000_000_000,
    "min_count": 2**63,
    "hidden": 100_000,
    "layers": 100,
    "projection": 100_000,
    "samples": 10_000_000,
    "maxent": 16,
    "maxent_bits": 40,
    "batch": 1_000_000,
    "bptt": 1_000_000,
    "epochs": 1_000_000,
    "patience": 1_000_000,
    "stop_after": 1_000_000,
    "threads": 1024,
    "workers": 1024,
    "words": 100_000_000,
    "tree_arity": 1_000_000,
    "class_count": 1_000_000,
    "cutoffs": 1_000_000_000,
}


def check_whole(name: str, value: int, least: int) -> None:
    """Refuses a whole number below ``least`` or above the most that the setting may be.

    >>> check_whole("hidden", 10**7, 1)
    Traceback (most recent call last):
    blackout.errors.UserError: hidden is 10000000, must be at most 100,000
    """
    _check(value >= least, name, value, f"at least {least}" if least else "0 or more")
    _check(value <= MOST[name], name, value, f"at most {MOST[name]:,}")


def check_paths(**paths: str | None) -> None:
    """Refuses the path of a setting that no settings file can hold."""
    for name, path in paths.items():
        if path is not None and not _is_utf8(path):
            raise UserError(
                f"{name}: the path {path!r} is not valid UTF-8, so run.toml cannot hold it; "
                "rename the file, or give a link to it"
            )


@dataclass(frozen=True)
class DataConfig:
    """Where the text is: three files, or a folder that ``blackout prepare`` made of them."""

    train: str | None = None
    """Text to train on, one sentence a line."""
    valid: str | None = None
    """Text that decides the learning rate and the best model."""
    test: str | None = None
    """Text for the final perplexity."""
    prepared: str | None = None
    """Folder of blackout prepare, instead of the three files."""

    def __post_init__(self) -> None:
        check_paths(**vars(self))


@dataclass(frozen=True)
class ReadingConfig:
    """How text is read."""

    keep_empty: bool = False
    """Count an empty line as an empty sentence instead of skipping it."""
    skip_markers: bool = False
    """Drop a literal <s> or </s> inside a line instead of refusing the file."""
    replace_invalid: bool = False
    """Read invalid UTF-8 as U+FFFD instead of refusing the file."""

    def reading(self) -> dict[str, bool]:
        """These settings by name, as native code and :class:`ReadingConfig` take them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(ReadingConfig)}


@dataclass(frozen=True)
class TextConfig(ReadingConfig):
    """How text becomes word numbers."""

    vocab_size: int | None = None
    """Keep at most this many words, </s> and <unk> included; None keeps all."""
    min_count: int = 1
    """Words that occur less often become <unk>."""

    def __post_init__(self) -> None:
        if self.vocab_size is not None:
            check_whole("vocab_size", self.vocab_size, 3)
        check_whole("min_count", self.min_count, 1)


@dataclass(frozen=True)
class ModelConfig:
    """The recurrent network (paper eq. 1)."""

    cell: Cell = "gru"
    """The recurrent unit; sigmoid is the paper's, relu starts from an identity matrix (IRNN)."""
    hidden: int = 256
    """Units of each recurrent layer."""
    layers: int = 1
    """Recurrent layers."""
    projection: int = 0
    """Linear units between the last recurrent layer and the output; 0 for none."""
    dropout: float = 0.0
    """Chance to drop an input, a value between layers or an output of the recurrence."""
    bias: bool = False
    """Add bias vectors to the recurrence and to the output layer."""
    init_range: float | None = None
    """Weights start uniformly in ± this; None: in ± 0.3 in the input table and in ± 1/√n where a
    unit or a word adds up n inputs."""
    context: Literal["sentence", "stream"] = "sentence"
    """Forget everything at a sentence's end, or carry the state across it."""
    storage: Literal["fp32", "bf16"] = "fp32"
    """Number format of the two word tables; bf16 halves them, updates are rounded at random."""
    tie: bool = False
    """One word table for input and output; a projection must then be as wide as the layers."""

    def __post_init__(self) -> None:
        check_whole("hidden", self.hidden, 1)
        check_whole("layers", self.layers, 1)
        check_whole("projection", self.projection, 0)
        _check(0 <= self.dropout < 1, "dropout", self.dropout, "at least 0 and below 1")
        if self.init_range is not None:
            _check(0 < self.init_range < math.inf, "init_range", self.init_range, "above 0")
        if self.tie and self.projection not in (0, self.hidden):
            _check(False, "projection", self.projection, f"0 or {self.hidden}, hidden, with tie")


@dataclass(frozen=True)
class LossConfig:
    """The output layer's training loss (paper eqs. 6-11)."""

    loss: LossName = losses.DEFAULT
    """The output layer and its training loss."""
    samples: int = 500
    """K, the words drawn to stand for the vocabulary."""
    alpha: float = 1.0
    """Power of the unigram distribution words are drawn from: 0 uniform, 1 unigram."""
    proposal: Literal["unigram", "batch", "bigram", "model", "lsh"] = "unigram"
    """Draw by word counts, from the block's targets, by input words, as the model predicts, or
    near the hidden states by locality-sensitive hashing."""
    sharing: Literal["step", "block", "word"] = "step"
    """One sample set for each time step, for the whole block, or for each word."""
    negatives: Literal["softmax", "nce"] = "softmax"
    """Compare a negative with target and samples, or with the samples alone (paper 2.2)."""
    target_weight: Literal["proposal", "one"] = "proposal"
    """Weigh the target by 1/Q like the samples, or by 1 (paper, footnote 1); not for nce."""
    collisions: Literal["keep", "remove"] = "keep"
    """Keep copies of the target among its samples, or take them out (the paper); nce keeps them."""
    always_sample: tuple[str, ...] = ()
    """Words put into every sample set."""
    sampling: Literal["global", "strata"] | None = None
    """Draw from all words, or some from each of up to 64 groups of words, strata, so that every
    machine has its share of the draws; None: strata where a run begins on several ranks."""
    log_z: float | Literal["learned"] = "learned"
    """NCE's log normaliser: a constant, or "learned", beginning at log V."""
    gamma: float = 0.1
    """With loss self-normalised: weight of the penalty (log Z)²."""
    normalise_over: Literal["samples", "all"] = "samples"
    """With loss self-normalised: take log Z from the samples, or from the whole vocabulary."""
    tree_arity: int = 2
    """Of hierarchical: children of a node of the tree, which is Huffman's."""
    tree_file: str | None = None
    """Of hierarchical: a tree of your own, a word and its path (0.1.1) a line."""
    class_count: int | None = None
    """Of classes: how many there are; None: the root of the number of words."""
    class_file: str | None = None
    """Of classes: your own, a word and the name of its class a line."""
    cutoffs: tuple[int, ...] = ()
    """Of adaptive: the first word of each cluster, words by count; none: those of least cost."""
    spherical_lr: float = 0.01
    """With loss spherical: rate of the layer's own SGD, for one word; lr multiplies it too."""
    spherical_epsilon: float = 0.01
    """With loss spherical: added to the square of each word's score."""
    maxent: int = 0
    """Add hashed n-gram features of up to so many words before the target; 0 for none."""
    maxent_bits: int = 22
    """With maxent: the features lie in 2 to this power numbers."""

    def __post_init__(self) -> None:
        own = losses.find(self.loss).options
        if "maxent" not in own:
            _check(self.maxent == 0, "maxent", self.maxent, f"0 with loss {self.loss}")
        if "proposal" not in own or ("normalise_over" in own and self.normalise_over == "all"):
            only = f"unigram with loss {self.loss}, which draws no samples"
            _check(self.proposal == "unigram", "proposal", self.proposal, only)
        _check(0 <= self.gamma < math.inf, "gamma", self.gamma, "0 or more")
        for name in ("spherical_lr", "spherical_epsilon"):
            value = getattr(self, name)
            _check(0 < value < math.inf, name, value, "above 0")
        check_whole("maxent", self.maxent, 0)
        check_whole("maxent_bits", self.maxent_bits, 1)
        for cut in self.cutoffs:
            check_whole("cutoffs", cut, 1)
        _check(list(self.cutoffs) == sorted(set(self.cutoffs)), "cutoffs", self.cutoffs, "rising")
        check_whole("samples", self.samples, 1)
        _check(0 <= self.alpha <= 1, "alpha", self.alpha, "between 0 and 1")
        check_whole("tree_arity", self.tree_arity, 2)
        if self.class_count is not None:
            check_whole("class_count", self.class_count, 1)
        check_paths(tree_file=self.tree_file, class_file=self.class_file)
        if self.log_z != "learned":
            _check(math.isfinite(self.log_z), "log_z", self.log_z, 'a number or "learned"')


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser, with row-sparse updates (paper appendix C), and the learning-rate schedule."""

    optimizer: Literal["rmsprop", "adagrad", "adam"] = "rmsprop"
    """How weights follow their gradients: with second moments, with sums of squares, or with
    both moments."""
    lr: float = 1.0
    """Learning rate: a multiple of what suits each weight, or with rates same that of every one."""
    maxent_lr: float = 1.0
    """Learning rate of hashed features, a multiple of what suits them."""
    rates: Literal["width", "same"] = "width"
    """A rate for each kind of weight that follows cell, width and block, or lr for all of them."""
    schedule: Literal["linear", "cosine", "validation", "constant"] | None = None
    """How the rate falls: to 0 by the last epoch, or as validation goes; None: linear, and
    validation with epochs auto."""
    lr_decay: float = 0.999
    """With schedule validation: factor after an epoch that did not make validation worse."""
    lr_cut: float = 0.7
    """With schedule validation: factor after an epoch that made validation worse."""
    beta: float = 0.999
    """Memory of the second moment; adagrad forgets nothing."""
    momentum: float = 0.9
    """With optimizer adam: memory of the first moment."""
    weight_decay: float = 0.0
    """Part of a touched weight that a step takes away, times its learning rate."""
    correct_bias: bool = True
    """Take into account that the second moment began at 0, so that first steps are no giants."""
    damping_words: float = 1.0
    """Floor under the second moment, in what one target word adds to it, (1-beta)/(batch·bptt)²."""
    damping: float | None = None
    """Added to the second moment under the root; None: what damping-words comes to."""
    decay: Literal["exact", "paper", "none"] = "exact"
    """How the second moment of a row ages while the row is not touched."""
    cap_update_rate: bool = False
    """With decay "paper": limit the update rate to 1."""
    second_moment: Literal["full", "row"] = "full"
    """A second moment for each weight of a word table, or one for each row."""
    clip: float = 1.0
    """Largest global norm of a gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        _check(0 < self.lr < math.inf, "lr", self.lr, "above 0")
        _check(0 < self.maxent_lr < math.inf, "maxent_lr", self.maxent_lr, "above 0")
        _check(0 <= self.damping_words < math.inf, "damping_words", self.damping_words, "0 or more")
        _check(0 < self.lr_decay <= 1, "lr_decay", self.lr_decay, "above 0 and at most 1")
        _check(0 < self.lr_cut <= 1, "lr_cut", self.lr_cut, "above 0 and at most 1")
        _check(0 <= self.beta < 1, "beta", self.beta, "at least 0 and below 1")
        if self.damping is not None:
            _check(0 <= self.damping < math.inf, "damping", self.damping, "0 or more")
        _check(0 <= self.clip < math.inf, "clip", self.clip, "0 or more")
        _check(0 <= self.momentum < 1, "momentum", self.momentum, "at least 0 and below 1")
        _check(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "0 or more")
        if self.decay == "paper" and self.optimizer != "rmsprop":
            raise UserError(f"decay paper is for optimizer rmsprop, not {self.optimizer}")


@dataclass(frozen=True)
class RunConfig:
    """The training loop."""

    batch: int = 128
    """B, streams trained side by side."""
    bptt: int = 20
    """T, time steps of a block."""
    epochs: int | Literal["auto"] = 10
    """Passes over the training text; auto: until validation stops improving."""
    patience: int = 3
    """With epochs auto: stop after so many epochs without a better model."""
    stop_after: int | None = None
    """Stop after this epoch, as if the others came later: --resume can go on to them."""
    keep_going: bool = False
    """Train on when validation shows a ruined model, instead of stopping with status 1."""
    shuffle: bool = True
    """Lay the sentences in a new order each epoch; with context stream the order is the text's."""
    seed: int = 1
    """Decides weights, order and samples."""
    threads: int = 0
    """CPU threads; 0 for all cores, or for one where blocks are too small to share."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the matrix products; weights and sums stay float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    checkpoint_minutes: float = 10.0
    """Save a checkpoint this often; one is also saved after each epoch, and at the end."""
    epoch_checkpoints: bool = True
    """Save one after each epoch: with a large model on a GPU that can take as long as the epoch."""
    rank_timeout: float = 300.0
    """On several ranks: seconds to wait for one that does not answer before it is given up."""

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, 1)
        check_whole("bptt", self.bptt, 1)
        if self.epochs != "auto":
            check_whole("epochs", self.epochs, 1)
        check_whole("patience", self.patience, 1)
        if self.stop_after is not None:
            check_whole("stop_after", self.stop_after, 1)
        _check(0 <= self.seed < 2**63, "seed", self.seed, "0 or more and below 2**63")
        check_whole("threads", self.threads, 0)
        _check(
            self.checkpoint_minutes > 0, "checkpoint_minutes", self.checkpoint_minutes, "above 0"
        )
        _check(1 <= self.rank_timeout < 1e6, "rank_timeout", self.rank_timeout, "1 or more")

    @property
    def planned_epochs(self) -> int:
        """Epochs planned; with auto the most there can be."""
        return MOST["epochs"] if self.epochs == "auto" else self.epochs

    @property
    def last_epoch(self) -> int:
        """The epoch after which this run, or this part of it, ends at the latest."""
        return min(self.planned_epochs, self.stop_after or MOST["epochs"])


@dataclass(frozen=True)
class Config:
    """A whole run."""

    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.loss.proposal == "batch" and self.run.batch * self.run.bptt == 1:
            raise UserError(
                "proposal is batch, which draws from the targets of a block: with batch 1 and "
                "bptt 1 every sample is the target itself, and nothing would be learned"
            )
        if self.loss.maxent and self.optim.decay == "paper":
            raise UserError(
                "decay is paper, which has no rates for hashed features: with maxent it must be "
                "exact or none"
            )

    @property
    def warning(self) -> str | None:
        """What is allowed but hardly meant."""
        if self.loss.proposal == "batch" and self.run.batch == 1:
            return (
                "proposal is batch with batch 1: all samples come from the words around the "
                "target, which are no random draw; a larger batch learns better"
            )
        return None

    @classmethod
    def from_toml(cls, text: str, source: str = "config", preset: Preset | None = None) -> Config:
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
            raise UserError(f"{source}: not valid TOML: {error}") from None
        return cls.from_dict(values if preset is None else {"preset": preset, **values}, source)

    @classmethod
    def from_file(cls, path: str | Path, preset: Preset | None = None) -> Config:
        """The settings of a file, over those of the preset that it or the caller names."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot read the config: {error}") from None
        return cls.from_toml(text, str(path), preset)

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "config") -> Config:
        """The config with these values over the defaults; an unknown key is an error.

        ``preset`` among them names the settings to begin with (:mod:`blackout.presets`).
        """
        config: Config = _build(cls, over_preset(values, source), source, "")
        return config

    @property
    def schedule(self) -> str:
        """How the learning rate falls, where the settings leave it open."""
        default = "validation" if self.run.epochs == "auto" else "linear"
        return self.optim.schedule or default

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        lines = []
        for table, values in self.to_dict().items():
            lines.append(f"[{table}]")
            # TOML has no null: a setting that is None is left out and is None again when read.
            lines += [f"{k} = {_toml_value(v)}" for k, v in values.items() if v is not None]
            lines.append("")
        return "\n".join(lines)


def _check(ok: bool, name: str, value: object, expected: str) -> None:
    if not ok:
        raise UserError(f"{name} is {value!r}, must be {expected}")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _toml_value(value: object) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return json.dumps(value)  # the two agree on booleans, numbers and escaped strings


def _build(cls: Any, values: object, source: str, prefix: str) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{source}: {prefix.rstrip('.')} must be a table")
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in hints:
            raise UserError(f"{source}: unknown key {name!r} (known: {', '.join(sorted(hints))})")
        if dataclasses.is_dataclass(hints[key]):
            arguments[key] = _build(hints[key], value, source, f"{name}.")
        else:
            arguments[key] = _convert(value, hints[key], source, name)
    try:
        return cls(**arguments)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def _convert(value: object, hint: Any, source: str, name: str) -> object:
    for option in (
        get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    ):
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value) if abs(value) < 2**1000 else math.inf
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif get_origin(option) is tuple:
            kind = get_args(option)[0]
            if isinstance(value, list | tuple) and all(type(v) is kind for v in value):
                return tuple(value)
        elif type(value) is option:
            return value
        elif option is LossName and isinstance(value, str):
            return LossName(value)
    expected = str(hint).replace("typing.", "").replace("<class '", "").replace("'>", "")
    raise UserError(f"{source}: {name} is {value!r}, must be {expected}")
