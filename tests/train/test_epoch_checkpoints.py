"""Runs that save no checkpoint after each epoch: with large models on a GPU that takes too long."""

import signal

import pytest

from blackout.train.loop import Stopped
from blackout.train.progress import Progress


class Watch(Progress):
    """Sees which checkpoints there are when an epoch begins, and stops the run at a block."""

    def __init__(self, out, stop=None):
        self.out, self.stop = out, stop
        self.seen = []

    def epoch_begins(self, epoch, epochs, words):
        self.seen.append(len(list(self.out.glob("checkpoints/*"))))

    def block_done(self, position):
        if position.step == self.stop:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(("saves", "seen"), [(True, [0, 1, 1]), (False, [0, 0, 0])])
def test_a_checkpoint_after_each_epoch_or_at_the_end_alone(lab, tmp_path, saves, seen):
    watch = Watch(tmp_path / "out")
    lab.train(tmp_path / "out", epochs=3, epoch_checkpoints=saves, progress=watch)
    assert watch.seen == seen
    lab.train(tmp_path / "other", epochs=3)
    assert lab.differing(lab.final(tmp_path / "out"), lab.final(tmp_path / "other")) == []


def test_a_run_without_them_goes_on_where_it_was_stopped(lab, tmp_path):
    """In its second epoch, of about 20 blocks."""
    out, settings = tmp_path / "out", {"epochs": 3, "epoch_checkpoints": False}
    with pytest.raises(Stopped):
        lab.train(out, progress=Watch(out, stop=30), **settings)
    result = lab.train(out, resume=True, **settings)
    assert result.epochs == 3
    lab.train(tmp_path / "straight", epochs=3)
    assert lab.differing(lab.final(tmp_path / "straight"), lab.final(out)) == []
