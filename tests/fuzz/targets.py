"""The targets: one for each parser."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from tests.fuzz.asking import PATHS
from tests.fuzz.target import TARGETS, Target, attempt, target
from tests.fuzz.workshop import (
    Workshop,
    sealed_json,
    sealed_ngram,
    sealed_shard,
    sealed_tensors,
)

import blackout
from blackout.config import Config
from blackout.errors import UserError
from blackout.models.convert import convert_rnnlm
from blackout.ngram import NGram
from blackout.ngram import train as estimate
from blackout.output.word_files import read_classes, read_tree
from blackout.paper.lab import Lab
from blackout.paper.mixing import Scored, mix
from blackout.rescore.formats import read_nbest
from blackout.rescore.weights import Weights, load_weights, save_weights
from blackout.run_folder import RunFolder
from blackout.score.dumps import read_dump
from blackout.score.perplexity import evaluate
from blackout.text.catalogue import Corpus, Part
from blackout.text.download import earlier
from blackout.text.fetch import is_complete
from blackout.text.prepared import open_prepared
from blackout.text.shards import Shard
from blackout.text.vocab import Vocab
from blackout.train import train
from blackout.train.metrics import read_metrics
from blackout.trials.trial import read_result, write_result
from blackout.trials.trials import Epoch, Outcome
from blackout.trials.words import write_words

__all__ = ["TARGETS", "Target", "attempt"]


# ---------------------------------------------------------------------- models and runs


def _scored(folder: Path, workshop: Workshop) -> None:
    model = blackout.load(folder)
    found = evaluate(model, workshop.data.shard("valid")).checked(folder)  # as `blackout eval`
    assert 1 <= found.perplexity < math.inf


@target(
    "config", lambda w: [RunFolder(w.run).config.read_bytes()], "null true 1e999 -1 hidden", "json"
)
def config_json(workshop: Workshop, data: bytes) -> None:
    _scored(workshop.model_with("config.json", sealed_json(data)), workshop)


@target("vocab", lambda w: [RunFolder(w.run).vocab.read_bytes()], "<unk> </s>")
def vocab_txt(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("vocab.txt")
    path.write_bytes(data)
    vocab = Vocab.load(path)
    assert vocab.ids(vocab.words) == list(range(len(vocab)))
    _scored(workshop.model_with("vocab.txt", data), workshop)


@target(
    "weights",
    lambda w: [RunFolder(w.run).weights.read_bytes()],
    "F32 BF16 shape data_offsets",
    "tensors",
)
def weights(workshop: Workshop, data: bytes) -> None:
    _scored(workshop.model_with("model.safetensors", sealed_tensors(data)), workshop)


@target(
    "parts",
    lambda w: [(w.divided_model() / "model.safetensors").read_bytes()],
    "strata files tables name sha256 part-of-",
    "tensors",
)
def index_of_parts(workshop: Workshop, data: bytes) -> None:
    _scored(workshop.divided_with(index=sealed_tensors(data)), workshop)


@target(
    "part",
    lambda w: [w.part().read_bytes()],
    "embedding.weight@0 output.table.weight@1 F32",
    "tensors",
)
def part(workshop: Workshop, data: bytes) -> None:
    _scored(workshop.divided_with(part=sealed_tensors(data)), workshop)


def _resumed(folder: Path, workshop: Workshop) -> None:
    result = train(workshop.config, workshop.data, folder, resume=True)
    assert result.valid_perplexity > 0


@target(
    "checkpoint-parts",
    lambda w: [w.divided_checkpoint().read_bytes()],
    "strata files tables name sha256 part-of- position",
    "tensors",
)
def index_of_a_checkpoints_parts(workshop: Workshop, data: bytes) -> None:
    _resumed(workshop.run_in_parts(index=sealed_tensors(data)), workshop)


@target(
    "checkpoint-part",
    lambda w: [w.checkpoint_part().read_bytes()],
    "model. optim. F32 I32",
    "tensors",
)
def checkpoint_part(workshop: Workshop, data: bytes) -> None:
    _resumed(workshop.run_in_parts(part=sealed_tensors(data)), workshop)


@target(
    "checkpoint",
    lambda w: [w.checkpoint(), w.checkpoint_on_the_way],
    "position config F32 data_offsets",
    "tensors",
)
def checkpoint(workshop: Workshop, data: bytes) -> None:
    _resumed(workshop.run_with(sealed_tensors(data)), workshop)


# ---------------------------------------------------------------------- text


@target(
    "shard",
    lambda w: [w.data.shard("valid").path.read_bytes()],
    "tokens sentences checksum",
    "shard",
)
def shard(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("valid.shard")
    path.write_bytes(sealed_shard(data))
    found = Shard.open(path, workshop.data.vocab)
    evaluate(_model(workshop.run), found)


@functools.cache
def _model(run: Path):  # type: ignore[no-untyped-def]
    return blackout.load(run)


@target("ngram-words", lambda w: [(w.folder / "data" / "vocab.txt").read_bytes()], "<unk> </s>")
def words_of_an_ngram(workshop: Workshop, data: bytes) -> None:
    path, out = workshop.place("words"), workshop.place("model.arpa")
    path.write_bytes(data)
    estimate(workshop.folder / "train", out, order=2, vocab=path, threads=1, memory=4096)
    assert len(NGram.load(out)) >= 3


@target("prepared", lambda w: [(w.folder / "data" / "vocab.txt").read_bytes()])
def prepared(workshop: Workshop, data: bytes) -> None:
    folder = workshop.place("prepared")
    folder.mkdir()
    for path in (workshop.folder / "data").iterdir():
        (folder / path.name).write_bytes(data if path.name == "vocab.txt" else path.read_bytes())
    open_prepared(folder)


@target("dump", lambda w: [b"the\t-1\n</s>\t-0.5\n"], "-inf nan 1e-400")
def dump(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("dump")
    path.write_bytes(data)
    for words, logs in read_dump(path):
        assert len(words) == len(logs)
        assert not np.isnan(logs).any()
        assert (logs <= 0).all()


# ---------------------------------------------------------------------- n-grams


def _use_ngram(model: NGram) -> None:
    ids = np.arange(min(len(model), 40), dtype=np.uint32)
    for scores in (model.score_tokens(ids), model.score(model.vocab[:20])):
        values = np.asarray(scores)
        assert np.isfinite(values).all()
        assert (values <= 0).all()


@target("arpa", lambda w: [w.arpa.read_bytes()], "\\data\\ \\1-grams: \\end\\ ngram <unk> -99 nan")
def arpa(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("model.arpa")
    path.write_bytes(data)
    _use_ngram(NGram.load(path))


@target("ngram", lambda w: [w.binary.read_bytes()])
def binary_ngram(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("model.bin")
    path.write_bytes(sealed_ngram(data))
    _use_ngram(NGram.load(path))


# ---------------------------------------------------------------------- other programs' files


def _rnnlm_file() -> bytes:
    """A model of two words and the unknown one, two units, as the program writes it."""
    words = ["</s>", "the", "cat"]
    size = len(words) + 1
    lines = [
        f"input layer size: {size}",
        "hidden layer size: 2",
        f"output layer size: {size}",
        f"vocabulary size (including </s> and <unk>): {size}",
        "",
        "Vocabulary:",
        *(f"{i:>10}\t{word}" for i, word in enumerate(words)),
    ]
    tables = {"Win": size, "Wout": size, "Wr": 2}
    for name, rows in [*tables.items(), *((f"RmsProps-{n}", r) for n, r in tables.items())]:
        lines += ["", f"{name}:", *(["0.5 0.25 "] * rows)]
    return "".join(f"{line}\n" for line in lines).encode()


@target("rnnlm", lambda w: [_rnnlm_file()], "nan 1e999 -1 Vocabulary: Win: Wout: Wr: RmsProps-Win:")
def rnnlm(workshop: Workshop, data: bytes) -> None:
    path, out = workshop.place("rnnlm"), workshop.place("converted")
    path.write_bytes(data)
    convert_rnnlm(path, out)
    _scored_somehow(out)


def _scored_somehow(folder: Path) -> None:
    model = blackout.load(folder)
    log_prob = model.output.log_prob(torch.ones(1, model.output.in_features)).detach()
    assert abs(float(log_prob.double().exp().sum()) - 1) < 1e-4


def _nbest(name: str, form: str) -> Callable[[Workshop, bytes], None]:
    def use(workshop: Workshop, data: bytes) -> None:
        path = workshop.place(name)
        path.write_bytes(data)
        lists = read_nbest(path, form)  # type: ignore[arg-type]
        for utterance in lists.utterances:
            assert all(
                math.isfinite(h.acoustic) and math.isfinite(h.lm) for h in utterance.hypotheses
            )

    return use


JSONL = b'{"utt": "a", "hyps": [{"text": "hello world", "am": -3, "lm": -2.5}, {"text": ""}]}\n'
KALDI = b"utt-1 hello world\nutt-2 hello\nother-1 the end\n"
SRILM = b"-100.5 -12.25 2 hello world\n-101 -13 1 hello\n"
target("jsonl", lambda w: [JSONL], "utt hyps text am lm null 1e999", "lines")(
    _nbest("a.jsonl", "jsonl")
)
target("kaldi", lambda w: [KALDI])(_nbest("text", "kaldi"))
target("srilm", lambda w: [SRILM], "NBestList1.0 NBestList2.0 nan")(_nbest("a.nbest", "srilm"))


@target("espnet", lambda w: [b"a hello world\nb hello\n"], "tensor( nan")
def espnet(workshop: Workshop, data: bytes) -> None:
    folder = workshop.place("espnet")
    rank = folder / "1best_recog"
    rank.mkdir(parents=True)
    half = data.find(b"\0")
    text, score = (data, b"a -1\nb -2\n") if half < 0 else (data[:half], data[half + 1 :])
    (rank / "text").write_bytes(text)
    (rank / "score").write_bytes(score)
    read_nbest(folder, "espnet")


@target("tree", lambda w: [_one_a_line(w, lambda i: f"{i // 3}.{i % 3}")], "0.1 0. .0 -1")
def tree_file(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("tree")
    path.write_bytes(data)
    vocab = workshop.data.vocab
    tree = read_tree(path, vocab.words, vocab.counts)
    layer = blackout.Hierarchical(4, len(vocab), tree=tree)
    total = layer.log_prob(torch.ones(1, 4)).detach().double().exp().sum()
    assert abs(float(total) - 1) < 1e-4


@target("classes", lambda w: [_one_a_line(w, lambda i: f"C{i % 3}")])
def class_file(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("classes")
    path.write_bytes(data)
    classes = read_classes(path, workshop.data.vocab.words)
    assert classes.min() == 0
    assert len(set(classes.tolist())) == classes.max() + 1


def _one_a_line(workshop: Workshop, about: Callable[[int], str]) -> bytes:
    words = workshop.data.vocab.words
    return "".join(f"{word}\t{about(i)}\n" for i, word in enumerate(words)).encode()


_QUESTIONS = (
    b'{"text": "the cat\\nsat", "top": 3}',
    b'{"text": "the", "prefix": "c", "model": "net+ngram", "weight": 0.25}',
    b'{"prompt": "the", "words": 3, "seed": 1, "temperature": 0.5, "top_k": 2}',
    b'{"utterances": [{"utt": "a", "hyps": [{"text": "the cat", "am": -3, "lm": -2}]}]}',
    b'{"word": "cat", "top": 3, "model": "net"}',
)


@target(
    "question",
    lambda w: [bytes([i]) + question for i, question in enumerate(_QUESTIONS)],
    "model text top temperature null 1e999 prompt words utterances utt hyps am lm weights ngram",
    "question",
)
def question(workshop: Workshop, data: bytes) -> None:
    """The first byte says which path the others are sent to."""
    path = PATHS[data[0] % len(PATHS)] if data else PATHS[0]
    status, answer = workshop.asking.ask(path, data[1:])
    assert status in (200, 400, 404, 413), (status, answer)
    if status != 200:
        raise UserError(answer[0]["error"])
    assert answer
    assert not (isinstance(answer[-1], dict) and "error" in answer[-1]), answer


# ---------------------------------------------------------------------- settings and records


@target("toml", lambda w: [w.config.to_toml().encode()], "inf nan [model] hidden [[ ]] '''")
def toml(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("run.toml")
    path.write_bytes(data)
    config = Config.from_file(path)
    again = Config.from_toml(config.to_toml())
    assert again == config


@target("metrics", lambda w: [(w.run / "metrics.jsonl").read_bytes()], "null epoch 1e999", "lines")
def metrics(workshop: Workshop, data: bytes) -> None:
    from blackout.pages.report import write_report

    folder = workshop.place("reported")
    folder.mkdir()
    run = RunFolder(workshop.run)
    for path in (run.config, run.vocab, run.settings):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "metrics.jsonl").write_bytes(data)
    records = list(read_metrics(folder / "metrics.jsonl"))
    if len(records) < 20:
        write_report(folder)


@target("result", lambda w: list(_results(w)), "curve outcome failure null", "json")
def trial_result(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("result.json")
    path.write_bytes(sealed_json(data))
    read_result(path)


def _results(workshop: Workshop) -> Iterator[bytes]:
    path = workshop.place("seed.json")
    write_result(
        path, workshop.config, Outcome((Epoch(1, 10, 0.5, 1.0, 2.0, 30.0),), {}, 20.0, 100)
    )
    yield path.read_bytes()


# ---------------------------------------------------------------------- what is kept for later


@target(
    "words",
    lambda w: [_kept_words(w, np.float32), _kept_words(w, np.float64)],
    "F32 F64",
    "tensors",
)
def words_of_a_trial(workshop: Workshop, data: bytes) -> None:
    """As they are used: mixed with what a 5-gram makes of the same words."""
    path = workshop.place("words.safetensors")
    path.write_bytes(sealed_tensors(data))
    other = Scored(np.linspace(-3, -1, _KEPT), np.zeros(_KEPT))
    found = mix(path, {"valid": other, "test": other})
    assert 0 <= found.weight <= 1
    assert found.network >= 1 - 1e-6
    assert 1 - 1e-6 <= found.mixture < math.inf


_KEPT = 20


def _kept_words(workshop: Workshop, kind: type[np.floating]) -> bytes:
    path = workshop.place("seed.safetensors")
    logs = np.linspace(-1, -3, _KEPT, dtype=kind)
    write_words(path, {"valid": logs, "test": logs})
    return path.read_bytes()


@target("note", lambda w: [b'{"marks": [1.5, 2], "seconds": 3}'], "null", "json")
def note_of_a_study(workshop: Workshop, data: bytes) -> None:
    lab = Lab(workshop.place("study"))
    about = {"rate": 0.5}
    lab.remember(about, dict)
    (note,) = (lab.out / "cache" / "other").iterdir()
    note.write_bytes(data)
    assert isinstance(lab.remember(about, dict), dict)


@target(
    "download",
    lambda w: [b'{"url": "http://x/a", "version": "\\"5f3a\\""}', b'{"name": "a", "sha256": {}}'],
    "url version name sha256 train",
    "json",
)
def notes_of_a_download(workshop: Workshop, data: bytes) -> None:
    """Of one that broke off, and of one that is complete."""
    folder = workshop.place("download")
    folder.mkdir()
    (folder / "a.partial").write_bytes(b"half")
    for name in ("a.partial.json", "corpus.json"):
        (folder / name).write_bytes(data)
    have, version = earlier("http://x/a", folder / "a.partial")
    assert have in (0, 4)
    assert version.isprintable()
    assert version.isascii()
    (folder / "train").write_bytes(b"text")
    assert not is_complete(Corpus("a", (), (Part("train", ("train",)),)), folder)


@target("scales", lambda w: [_scales(w)], "lm_weight oov_penalty null 1e999", "json")
def scales_of_rescoring(workshop: Workshop, data: bytes) -> None:
    path = workshop.place("weights.json")
    path.write_bytes(data)
    weights = load_weights(path)
    assert all(math.isfinite(value) for value in vars(weights).values())


def _scales(workshop: Workshop) -> bytes:
    path = workshop.place("seed.json")
    save_weights(Weights(), path)
    return path.read_bytes()
