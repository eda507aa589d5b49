"""Settings beyond all measure: a sentence before memory is asked for, not a dead machine."""

import ctypes
import dataclasses
import gc
import json
import os
import shutil
import sys
import typing

import pytest

import blackout
from blackout import memory
from blackout.bench.measure import TrainingBench
from blackout.cli.main import main
from blackout.config import MOST, Config
from blackout.errors import UserError
from blackout.memory import Need, free_memory, require, scoring_need, total_memory, training_need
from blackout.run_folder import RunFolder
from blackout.text.vocab import Vocab


@pytest.fixture
def fails(capsys):
    def check(arguments, *named):
        capsys.readouterr()
        assert main([str(word) for word in arguments]) == 1
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 1
        for name in named:
            assert str(name) in said[0]

    return check


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("layers", 10**20),
        ("threads", 5000),
        ("hidden", 10**7),
        ("projection", 10**9),
        ("batch", 2**64 - 1),
        ("bptt", 2**32),
        ("samples", 10**12),
        ("vocab_size", 2**64),
        ("min_count", 2**64),
        ("epochs", 10**30),
    ],
)
def test_above_the_most(lab, tmp_path, fails, setting, value):
    limit = f"{setting} is {value}, must be at most {MOST[setting]:,}"
    fails(lab.options(tmp_path / "out", **{setting: value}), limit)
    assert not list((tmp_path / "out").glob("*.*"))


def test_every_whole_number_has_a_most():
    """A setting that somebody adds needs a limit too."""
    for table in typing.get_type_hints(Config).values():
        for name, hint in typing.get_type_hints(table).items():
            if hint in (int, int | None) and name != "seed":
                with pytest.raises(UserError, match=f"{name} is .* must be at most"):
                    dataclasses.replace(table(), **{name: MOST[name] + 1})


@pytest.mark.parametrize(
    ("verb", "named"),
    [
        ("eval {run} {text} --threads 5000", "threads is 5000"),
        ("ngram eval {run} {text} --threads 5000", ""),
        ("prepare --train {text} --out {out} --threads 5000", "threads is 5000"),
        ("ngram train --train {text} --out {out} --memory 1000000G", "memory is 1000000G"),
        ("ngram train --train {text} --out {out} --threads 99999", "threads is 99999"),
        ("bench train --vocab-size 10000000000", "vocab_size is 10000000000"),
        ("bench train --vocab-size 1000000000 --hidden 100000", "GB of memory"),
        ("bench eval --vocab-size 1000000000 --hidden 100000", "GB of memory"),
        ("bench eval --words 10000000000", "words is 10000000000"),
        ("tune --train {text} --valid {text} --out {out} --workers 100000", "workers is 100000"),
        ("generate {run} --words 1000000000000", "words is 1000000000000"),
    ],
)
def test_every_verb(lab, tmp_path, fails, verb, named):
    run = lab.folder / "too-much-run"
    if not run.exists():
        lab.train(run, epochs=1)
    places = {"run": run, "text": lab.text("test"), "out": tmp_path / "out"}
    fails(verb.format(**places).split(), named)


def test_a_strangers_config(lab, tmp_path, fails):
    """Checksums are right, the numbers are a trap."""
    for hidden, named in ((10**7, "hidden is 10000000"), (10**5, "of memory (")):
        folder = tmp_path / str(hidden)
        run = lab.folder / "too-much-run"
        if not run.exists():
            lab.train(run, epochs=1)
        shutil.copytree(run, folder)
        described = json.loads((folder / "config.json").read_text())
        config = lab.config()
        words = [f"w{i}" for i in range(300_000)] if hidden == 10**5 else ["a"]
        vocab = Vocab.from_counts(dict.fromkeys(["</s>", *words], 1))
        object.__setattr__(config.model, "hidden", hidden)
        RunFolder(folder).describe(config, vocab)
        assert json.loads((folder / "config.json").read_text()).keys() == described.keys()
        fails(["eval", folder, lab.text("test")], folder, named)


@pytest.mark.parametrize("loss", ["blackout", "nce", "sampled", "full", "hierarchical"])
def test_features_beyond_memory(lab, tmp_path, fails, loss):
    """What helps is the one thing that does."""
    options = {"loss": loss, "maxent": 3, "maxent_bits": 40}
    named = ("of memory (features 17,592.2 GB", "what helps: a smaller --maxent-bits")
    fails(lab.options(tmp_path / "out", **options), *named)
    bench = ["--maxent", "3", "--maxent-bits", "40", "--loss", loss]
    for verb in ("train", "eval"):
        fails(["bench", verb, "--vocab-size", "100", *bench], "of memory (features ")


def test_the_line_says_how_much_and_what_helps(lab, tmp_path, fails, monkeypatch):
    monkeypatch.setattr("blackout.runtime.free_memory", lambda: 100_000)
    fails(
        lab.options(tmp_path / "out", hidden=64, projection=32),
        "this run needs about",
        "MB of memory (",
        "there are 0.1 MB free",
        "what helps: --storage bf16 (then ",
        "--second-moment row (then ",
        "a smaller --hidden",
    )


def test_what_helps_leaves_out_what_is_set():
    plain = Config.from_dict({"model": {"storage": "bf16"}, "optim": {"second_moment": "row"}})
    need = training_need(plain, 10**9)
    with pytest.raises(UserError, match=r"helps: a smaller --hidden, a smaller --vocab-size, more"):
        require(need, 10**9)
    large = Config.from_dict({"run": {"batch": 10**6, "bptt": 1000}})
    assert "a smaller --batch" in training_need(large, 1000).smaller
    require(need, None)  # a system that tells nothing stops nobody
    require(Need("it", {"all": 5}, ()), 5)


def test_smaller_settings_need_less():
    base = {"model": {"hidden": 256}, "run": {"batch": 64}}
    whole = training_need(Config.from_dict(base), 10**6).total
    for table, setting, value in [
        ("model", "storage", "bf16"),
        ("optim", "second_moment", "row"),
        ("model", "hidden", 128),
        ("run", "batch", 8),
    ]:
        changed = {**base, table: {**base.get(table, {}), setting: value}}
        assert training_need(Config.from_dict(changed), 10**6).total < whole
    assert scoring_need(Config.from_dict(base), 10**6).total < whole / 1.5


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured_and_estimated(storage, moment):
    """What training takes beside what it was said to take, in bytes."""

    def config(hidden):
        return Config.from_dict(
            {
                "model": {"hidden": hidden, "storage": storage},
                "optim": {"second_moment": moment},
                "loss": {"samples": 50},
                "run": {"batch": 16, "bptt": 5},
            }
        )

    small = TrainingBench(config(8), 50)
    small.train_block()
    # what the parent's tests left behind would be used again, or go away, unseen
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident()
    bench = TrainingBench(config(128), 300_000)
    bench.train_block()
    for state in bench.optimizer.state.values():
        state["moment"] += 1  # as if every row had been touched
    need = training_need(config(128), 300_000)
    return resident() - before, need.total - 300_000 * 200  # made-up words have no letters


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("storage", "moment"), [("fp32", "full"), ("bf16", "row")])
def test_the_estimate_is_near_the_truth(storage, moment, child, tmp_path):
    found = tmp_path / "found"

    def measure():
        found.write_text(json.dumps(measured_and_estimated(storage, moment)))

    assert child(measure).wait() == 0
    measured, estimated = json.loads(found.read_text())
    assert 0.65 < estimated / measured < 1.35


def test_the_machine_tells():
    if sys.platform == "linux":
        assert 0 < free_memory() <= total_memory() * 1.01


def group(folder, limit, used, stat="", version=2):
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(stat)


def test_control_groups(tmp_path, monkeypatch):
    """The tightest group above the process counts, less what its file cache would give back."""
    monkeypatch.setattr(memory, "_own_groups", lambda: ["0::/a/b", "4:cpu,memory:/c"])
    group(tmp_path / "a" / "b", "max", 500)
    group(tmp_path / "a", 1000, 900, "anon 1\ninactive_file 50\nactive_file 25\n")
    group(tmp_path / "memory" / "c", 1 << 62, 7, version=1)
    group(tmp_path / "memory", 5000, 4000, version=1)
    assert list(memory._group_room(tmp_path)) == [175, 1000]
    assert list(memory._group_limits(tmp_path)) == [1000, 5000]
    monkeypatch.setattr(memory, "_own_groups", lambda: ["0::/not/visible/from/here"])
    group(tmp_path, 300, 100)
    assert list(memory._group_room(tmp_path))[-1] == 200


def test_numbers_no_machine_reads(lab, tmp_path, fails):
    path = tmp_path / "bad.toml"
    for text, named in [
        ("[model]\nhidden = " + "9" * 5000, "not valid TOML"),
        ("[model]\nhidden = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
        ("[optim]\nlr = " + "9" * 400, "lr is inf"),
    ]:
        path.write_text(text)
        fails(lab.options(tmp_path / "out", config=path), path, named)


def test_a_model_that_fits_loads(lab):
    run = lab.folder / "too-much-run"
    if not run.exists():
        lab.train(run, epochs=1)
    assert blackout.load(run).folder == run
