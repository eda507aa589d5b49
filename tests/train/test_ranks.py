"""One process and several: the same losses, the same weights, whoever goes on with whose run."""

import resource
import time
from pathlib import Path

import pytest
import torch
from tests.crew import RankError
from tests.train.over_ranks import events, furthest, last, run, scored

import blackout
from blackout.config import Config
from blackout.errors import UserError
from blackout.files.part_names import named_parts
from blackout.models.saved import load
from blackout.score.generate import generate
from blackout.score.perplexity import evaluate
from blackout.text.prepared import open_prepared, prepare
from blackout.train import train

LONG = {"batch": 3, "bptt": 1, "epochs": 3}  # more than 300 blocks
SHORT = {"batch": 7, "bptt": 4, "epochs": 1}
STRATA, GLOBAL = {"sampling": "strata"}, {"sampling": "global"}
RUNS = {
    "blackout": (2, LONG | STRATA | {"bias": True}),
    "lstm": (3, SHORT | GLOBAL | {"cell": "lstm", "bias": True}),
    "sampled": (4, SHORT | STRATA | {"loss": "sampled", "bias": True}),
    "nce": (2, SHORT | STRATA | {"loss": "nce", "log_z": "learned", "cell": "relu"}),
    "nce-global": (2, SHORT | GLOBAL | {"loss": "nce", "log_z": 3.0}),
    "full": (3, SHORT | {"loss": "full", "bias": True, "cell": "gru"}),
    "word": (3, SHORT | GLOBAL | {"sharing": "word", "decay": "paper"}),
    "stored": (4, SHORT | STRATA | {"storage": "bf16", "sharing": "block"}),
    "dropout": (2, SHORT | STRATA | {"dropout": 0.3, "layers": 2, "context": "stream"}),
    "adam": (3, SHORT | STRATA | {"optimizer": "adam", "second_moment": "row", "projection": 4}),
    "tied": (2, SHORT | STRATA | {"tie": True, "optimizer": "adagrad"}),
    "idle": (4, SHORT | GLOBAL | {"batch": 3, "loss": "sampled", "collisions": "remove"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_one_process_and_several_are_the_same(lab, crew, tmp_path, name):
    """Losses, weights, moments and clocks, the text's order, dropout, samples, initial weights."""
    ranks, settings = RUNS[name]
    config = lab.config(**settings).to_dict()
    alone = run(None, lab.data.folder, tmp_path / "alone", config)
    several = crew.run(run, ranks, lab.data.folder, tmp_path / "several", config)
    assert (
        len(alone["losses"])
        == len(several[0]["losses"])
        >= (300 if settings.items() >= LONG.items() else 10)
    )
    assert several[0]["losses"] == pytest.approx(alone["losses"], rel=1e-4)
    distance, where = furthest(last(tmp_path / "alone"), last(tmp_path / "several"))
    assert distance < 1e-4, where
    for found in several:  # every rank says the same, of validation and of the best model's test
        assert found["valid"] == several[0]["valid"] == pytest.approx(alone["valid"], rel=1e-4)
        assert found["test"] == several[0]["test"] == pytest.approx(alone["test"], rel=1e-4)


MOVES = {"there and back": (1, 3, 1), "fewer": (4, 2), "the same": (3, 3)}


@pytest.mark.parametrize("name", MOVES)
def test_any_number_of_ranks_goes_on_from_any_other(lab, crew, tmp_path, name):
    """Stopped in the middle of epochs of about 14 blocks: the trajectory is the same."""
    more = {"cell": "lstm", "dropout": 0.2, "storage": "bf16"} if name == "the same" else {}
    settings = lab.config(**(SHORT | STRATA | {"epochs": 2} | more)).to_dict()
    numbers = MOVES[name]
    straight = on(crew, numbers[0], lab, tmp_path / "straight", settings)
    moved, losses = tmp_path / "moved", []
    for i, ranks in enumerate(numbers):
        stop = 9 * (i + 1) if i + 1 < len(numbers) else None
        found = on(crew, ranks, lab, moved, settings, resume=i > 0, stop=stop)
        losses += found["losses"]
        parts = named_parts(max((moved / "checkpoints").glob("step-*")))
        assert len(parts) == (ranks if ranks > 1 else 0)
        assert len(list((moved / "checkpoints").iterdir())) == 1 + len(parts)
    if name == "the same":
        assert losses == straight["losses"]
        assert lab.differing(last(tmp_path / "straight"), last(moved)) == []
        assert events(tmp_path / "straight") == events(moved)
    assert losses == pytest.approx(straight["losses"], rel=1e-5)
    assert furthest(last(tmp_path / "straight"), last(moved))[0] < 1e-5
    assert found["test"] == pytest.approx(straight["test"], rel=1e-5)
    assert lab.leftovers(moved) == []


def on(crew, ranks, lab, out, settings, **how):
    """A run on so many ranks, by this process where that is one."""
    if ranks == 1:
        return run(None, lab.data.folder, out, settings, **how)
    return crew.run(run, ranks, lab.data.folder, out, settings, **how)[0]


def test_a_model_in_parts_is_read_by_any_number_of_ranks(lab, crew, tmp_path):
    """One process included, without a conversion: scores and text are the same."""
    out, shard = tmp_path / "out", lab.data.shard("test")
    settings = lab.config(**(SHORT | STRATA | {"bias": True})).to_dict()
    crew.run(run, 3, lab.data.folder, out, settings)
    assert len(named_parts(out / "model.safetensors")) == 3
    model = load(out)
    expected = evaluate(model, shard).perplexity
    text = generate(model, words=20, temperature=0.8)
    for ranks in (2, 4):
        for perplexity, said in crew.run(scored, ranks, out, lab.data.folder):
            assert perplexity == pytest.approx(expected, rel=1e-6)
            assert said == text
    on(crew, 1, lab, out, settings | {"run": settings["run"] | {"epochs": 2}}, resume=True)
    assert named_parts(out / "model.safetensors") == []
    assert list(out.glob("part-of-*")) == []  # whole again
    expected = evaluate(load(out), shard).perplexity
    for perplexity, _ in crew.run(scored, 2, out, lab.data.folder):
        assert perplexity == pytest.approx(expected, rel=1e-6)


def test_a_part_that_is_missing_or_damaged_is_refused_by_all_ranks(lab, crew, tmp_path):
    out, settings = tmp_path / "out", lab.config(**(SHORT | STRATA)).to_dict()
    crew.run(run, 2, lab.data.folder, out, settings, stop=3)
    part = named_parts(max((out / "checkpoints").glob("step-*")))[1]
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RankError) as caught:
        crew.run(run, 2, lab.data.folder, out, settings, resume=True)
    assert f"{part}: damaged: its checksum" in caught.value.text
    part.unlink()
    for ranks in (1, 3):
        with pytest.raises((UserError, RankError), match=f"{part.name}: is missing"):
            on(crew, ranks, lab, out, settings, resume=True)
    part.write_bytes(whole)
    assert on(crew, 4, lab, out, settings, resume=True)["epochs"] == 1


def test_a_start_that_replaces_processes_goes_on_by_itself(lab, crew, tmp_path):
    out, settings = tmp_path / "out", lab.config(**SHORT).to_dict()
    crew.run(run, 3, lab.data.folder, out, settings, stop=5, launch="job 7")
    with pytest.raises(RankError, match="holds a run already"):
        crew.run(run, 2, lab.data.folder, out, settings, launch="job 8")
    assert crew.run(run, 2, lab.data.folder, out, settings, launch="job 7")[0]["epochs"] == 1
    assert load(out).output.sampling == "strata"  # as it was begun on three ranks


def differing(group, data, out, settings, others=None, other_data=None, version=None):
    """Rank 1 is given something else."""
    if group.rank() == 0:
        return run(group, data, out, settings)
    own = blackout.__version__
    blackout.__version__ = version or own
    try:
        return run(group, other_data or data, out, others or settings)
    finally:
        blackout.__version__ = own


@pytest.fixture(scope="module")
def another(lab, tmp_path_factory):
    """A prepared text with the same vocabulary, and one with another."""
    folder, found = tmp_path_factory.mktemp("another"), []
    *most, one, other = lab.text("train").read_text().splitlines(keepends=True)
    texts = {"text": [*most, other, one], "vocabulary": [*most, one, other, "a zebra\n"]}
    for name, lines in texts.items():
        (folder / name).write_text("".join(lines))
        found.append(prepare(folder / name, folder / f"data-{name}", valid=lab.text("valid")))
    return [data.folder for data in found]


def test_ranks_that_differ_are_named_before_anything_is_written(lab, crew, tmp_path, another):
    settings = lab.config(**SHORT).to_dict()
    other = lab.config(**(SHORT | {"hidden": 9})).to_dict()
    with pytest.raises(RankError) as caught:
        crew.run(differing, 3, lab.data.folder, tmp_path / "out", settings, other)
    assert caught.value.text.endswith("model.hidden is 8 on rank 0 and 9 on rank 1")
    text, vocabulary = another
    for what, named in (
        ({"version": "0.0.1"}, "version of blackout is"),
        ({"other_data": text}, "train text, its checksum is"),
        ({"other_data": vocabulary}, "vocabulary, its checksum is"),
    ):
        with pytest.raises(RankError) as caught:
            crew.run(differing, 2, lab.data.folder, tmp_path / "out", settings, **what)
        assert named in caught.value.text
        assert "on rank 1" in caught.value.text
    many = lab.config(**(SHORT | {"samples": 3})).to_dict()
    with pytest.raises(RankError) as caught:
        crew.run(run, 4, lab.data.folder, tmp_path / "out", many)
    assert "4 ranks cannot share 2 strata" in caught.value.text
    assert not (tmp_path / "out" / "config.json").exists()


def test_a_rank_that_names_another_text_than_was_prepared_is_named(lab, crew, tmp_path):
    """Rank 0 prepares for all; what the others were told to train on is looked at all the same."""
    settings, copy = lab.config(**SHORT).to_dict(), tmp_path / "copy"
    here = {part: str(lab.text(part)) for part in ("train", "valid")}
    copy.write_bytes(lab.text("train").read_bytes())
    begun = tmp_path / "prepared"
    prepare(here["train"], begun, valid=here["valid"])
    for what, said in (
        ({"train": here["valid"]}, f"{here['valid']}: is another train text than that of rank 0"),
        ({"valid": here["train"]}, f"{here['train']}: is another valid text than that of rank 0"),
        ({"train": str(tmp_path / "no")}, "no: cannot be read"),
        ({"test": here["train"]}, f"{here['train']}: rank 0 was given no test text"),
    ):
        first, other = settings | {"data": here}, settings | {"data": here | what}
        with pytest.raises(RankError) as caught:
            crew.run(differing, 2, begun, tmp_path / "out", first, other)
        assert said in caught.value.text
    assert not (tmp_path / "out").exists()
    other = settings | {"data": here | {"train": str(copy)}}
    crew.run(differing, 2, begun, tmp_path / "out", settings | {"data": here}, other)


def test_a_checkpoint_of_another_vocabulary_is_refused(lab, crew, tmp_path, another):
    out, settings = tmp_path / "out", lab.config(**SHORT).to_dict()
    crew.run(run, 2, lab.data.folder, out, settings, stop=3)
    with pytest.raises(RankError, match="is from a run with another vocabulary"):
        crew.run(run, 2, another[1], out, settings, resume=True)


def limited(group, room):
    """One step of a layer of half a gigabyte with its moments, in so much more memory than now."""
    status = Path("/proc/self/status").read_text()
    now = int(status.split("VmData:")[1].split()[0]) * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (now + room, hard))
    try:
        layer = blackout.BlackOut(64, 1_000_000, 20, sampling="global", process_group=group)
        update = blackout.RMSProp(layer.parameters(), lr=0.01)
        layer(torch.randn(4, 64), torch.arange(4)).loss.backward()
        update.step()
        return layer.weight.shape[0]
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts its memory")
def test_a_layer_too_large_for_one_process_trains_on_two(crew):
    room = 400 << 20
    with pytest.raises(RankError, match=r"(?i)memory|allocate"):
        crew.run(limited, 1, room)
    assert crew.run(limited, 2, room) == [500_000, 500_000]


def reporting(group, data, out, settings):
    """Whether the report, which takes a while, was there when this rank was done."""
    page = Path(out) / "report.html"

    def report(folder):
        time.sleep(1)
        page.write_text("a report")

    config = Config.from_dict(settings)
    train(config, open_prepared(data), out, report=report, process_group=group)
    return page.exists()


def test_ranks_wait_for_the_report(lab, crew, tmp_path):
    """torchrun stops the first as soon as another ends with a failure, as after a ruined run."""
    settings = lab.config(**SHORT).to_dict()
    assert crew.run(reporting, 2, lab.data.folder, tmp_path / "out", settings) == [True, True]


def diverging(group, data, out, settings):
    """One rank's row of a table becomes NaN after a few blocks."""
    from blackout.train.divided_step import DividedStep

    plain, done = DividedStep.train, []

    def spoil(self, block):
        plain(self, block)
        done.append(1)
        if len(done) == 4 and self.ranks.rank == 1:
            self.model.output.table.weight.data[0, 0] = torch.nan

    DividedStep.train = spoil
    try:
        return run(group, data, out, settings)
    finally:
        DividedStep.train = plain


def test_a_weight_that_is_not_finite_stops_all_ranks(lab, crew, tmp_path):
    out = tmp_path / "out"
    settings = lab.config(**(SHORT | {"loss": "full", "checkpoint_minutes": 1e-9})).to_dict()
    with pytest.raises(RankError) as caught:
        crew.run(diverging, 2, lab.data.folder, out, settings)
    assert "the last checkpoint is intact" in caught.value.text
    assert crew.run(run, 2, lab.data.folder, out, settings, resume=True)[0]["epochs"] == 1
