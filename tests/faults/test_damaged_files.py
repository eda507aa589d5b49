"""A damaged file is refused by name, or made anew where the text is there; never half used."""

import json
import random
import shutil

import pytest

import blackout
from blackout.cli.main import main
from blackout.errors import UserError
from blackout.run_folder import RunFolder
from blackout.text.prepared import open_prepared


@pytest.fixture(scope="module")
def run(lab):
    out = lab.folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blackout.pages.report.write_report", lambda out: None)
        assert main(lab.options(out, epochs=1)) == 0
    return out


def truncations(whole: bytes):
    """The file cut off at its beginning, its end, and many places between."""
    lengths = {0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 2, len(whole) - 1}
    lengths |= {random.Random(1).randrange(len(whole)) for _ in range(25)}
    return {f"cut to {n}": whole[:n] for n in lengths if n < len(whole)}


def flips(whole: bytes):
    """The file with one bit flipped: everywhere in a small file, at many places in a large one."""
    rng = random.Random(2)
    places = range(len(whole)) if len(whole) < 500 else sorted(rng.sample(range(len(whole)), 150))
    places = [*places, *range(min(64, len(whole))), len(whole) - 1]
    damaged = {}
    for place in places:
        bit = rng.randrange(8)
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        damaged[f"bit {bit} of byte {place}"] = bytes(changed)
    return damaged


def damages(whole: bytes):
    return truncations(whole) | flips(whole) | {"a byte more": whole + b"\0", "text": b"not it\n"}


def refusal(use, what) -> str:
    """The message with which a damaged file is refused."""
    try:
        use()
    except UserError as error:
        return str(error)
    pytest.fail(f"a file with {what} was used")


def refused_by_name(path, use, name=None) -> None:
    whole = path.read_bytes()
    try:
        for what, data in damages(whole).items():
            path.write_bytes(data)
            said = refusal(use, what)
            assert str(name or path) in said, what
            assert "\n" not in said, what
    finally:
        path.write_bytes(whole)
    use()


def test_weights(run):
    refused_by_name(run / "model.safetensors", lambda: blackout.load(run))


def test_vocabulary(run):
    refused_by_name(run / "vocab.txt", lambda: blackout.load(run))


def test_a_checkpoint(run):
    (path,) = run.glob("checkpoints/*")
    refused_by_name(path, lambda: blackout.load(run, which="last"))


def test_a_checkpoint_to_resume_from(lab, run, tmp_path):
    """Damage is not a reason to begin again in silence, nor to lose what is there."""
    out = tmp_path / "out"
    shutil.copytree(run, out)
    (path,) = out.glob("checkpoints/*")
    whole = path.read_bytes()
    others = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p != path}
    for data in list(damages(whole).values())[::12]:
        path.write_bytes(data)
        with pytest.raises(UserError, match=rf"{path}: .*damaged.*; put back a copy of it, or"):
            lab.train(out, resume=True, epochs=2, lr=0.004)
        assert path.read_bytes() == data
        assert {p: p.read_bytes() for p in others} == others
    path.write_bytes(whole)
    lab.train(out, resume=True, epochs=2, lr=0.004)


def test_the_hint_helps(lab, run, tmp_path):
    """Deleting the damaged checkpoint, as the message says, begins the run again."""
    out = tmp_path / "out"
    shutil.copytree(run, out)
    (path,) = out.glob("checkpoints/*")
    path.unlink()
    assert main(["train", "--out", str(out), "--resume"]) == 0
    assert lab.differing(lab.final(out), lab.final(run)) == []


def test_config_json(run):
    path = run / "config.json"
    whole = path.read_bytes()
    meant = RunFolder(run).description().config
    try:
        for what, data in damages(whole).items():
            path.write_bytes(data)
            if what == f"cut to {len(whole) - 1}":
                # Without its last line feed it still says the same, all of it.
                assert RunFolder(run).description().config == meant
                continue
            assert str(path) in refusal(lambda: RunFolder(run).description(), what)
    finally:
        path.write_bytes(whole)


def test_every_setting_in_config_json_is_under_the_checksum(run):
    path = run / "config.json"
    whole = path.read_bytes()
    try:
        for table, values in json.loads(whole)["config"].items():
            for key in values:
                description = json.loads(whole)
                description["config"][table][key] = 7
                path.write_text(json.dumps(description))
                with pytest.raises(UserError, match=r"config\.json: damaged: its checksum"):
                    RunFolder(run).description()
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["train.shard", "valid.shard", "test.shard"])
def test_a_shard_is_refused_where_there_is_no_text(run, name):
    refused_by_name(run / "data" / name, lambda: open_prepared(run / "data"))


def test_a_vocabulary_is_refused_where_there_is_no_text(run):
    """One that can still be read is another vocabulary: then the shard is named beside it."""
    data = run / "data"
    refused_by_name(data / "vocab.txt", lambda: open_prepared(data), name=data)


@pytest.mark.parametrize("name", ["train.shard", "valid.shard", "test.shard", "vocab.txt"])
def test_prepared_text_is_made_anew_where_the_text_is(lab, run, tmp_path, name):
    out = tmp_path / "out"
    shutil.copytree(run, out)
    path = out / "data" / name
    whole = open_prepared(run / "data")  # not the copy: a mapped file must not shrink
    for data in list(damages(path.read_bytes()).values())[::60]:
        path.write_bytes(data)
        assert main(["train", "--out", str(out), "--resume"]) == 0
        again = open_prepared(out / "data")
        assert again.vocab == whole.vocab
        for part in ("train", "valid", "test"):
            assert again.shard(part).tokens.tolist() == whole.shard(part).tokens.tolist()
            assert again.shard(part).offsets.tolist() == whole.shard(part).offsets.tolist()
    assert lab.differing(lab.final(out), lab.final(run)) == []


def test_parts_of_different_models_are_refused(lab, run, tmp_path):
    (tmp_path / "text").write_text(lab.text("train").read_text() + "one zebra\n")
    others = {
        "words": lab.options(tmp_path / "words", epochs=1, train=tmp_path / "text"),
        "size": lab.options(tmp_path / "size", epochs=1, hidden=9),
        "cell": lab.options(tmp_path / "cell", epochs=1, cell="lstm"),
    }
    mixed = tmp_path / "mixed"
    for name, options in others.items():
        assert main(options) == 0
        for part in ("model.safetensors", "vocab.txt"):
            shutil.copytree(run, mixed)
            shutil.copy(tmp_path / name / part, mixed / part)
            if (mixed / part).read_bytes() == (run / part).read_bytes():
                blackout.load(mixed)
            else:
                with pytest.raises(UserError, match=str(mixed / part)):
                    blackout.load(mixed)
            shutil.rmtree(mixed)


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
def test_a_missing_file_is_named(run, tmp_path, name):
    shutil.copytree(run, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    with pytest.raises(UserError, match=f"model: not a model folder: it has no {name}"):
        blackout.load(tmp_path / "model")
    if name == "model.safetensors":
        blackout.load(tmp_path / "model", which="last")


def test_metrics_with_a_damaged_line(tmp_path):
    from blackout.train.metrics import read_metrics

    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"event": "note"}\n{"event": "epo')
    assert list(read_metrics(path)) == [{"event": "note"}]
    path.write_bytes(b'{"event": "note"}\n{"event": \xff}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2: damaged"):
        list(read_metrics(path))
