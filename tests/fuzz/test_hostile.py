"""Every parser against the files that once harmed one, or might: a line each, or a right answer."""

import random
import resource
import time
from pathlib import Path

import pytest
from tests.fuzz.crafted import crafted
from tests.fuzz.targets import TARGETS, attempt
from tests.fuzz.workshop import Workshop

HOSTILE = Path(__file__).parent.parent / "hostile"
FILES = sorted(path for path in HOSTILE.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    made = Workshop(tmp_path_factory.mktemp("workshop"))
    yield made
    made.close()


@pytest.mark.parametrize("name", TARGETS)
def test_good_files_are_taken(name, workshop):
    for seed in TARGETS[name].seeds(workshop):
        assert attempt(workshop, TARGETS[name], seed)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_hostile_file(path, workshop):
    before, data = peak(), path.read_bytes()
    began = time.process_time()
    attempt(workshop, TARGETS[path.parent.name], data)
    assert peak() - before < 100 * len(data) + (200 << 20), "an absurd allocation"
    assert time.process_time() - began < 30, "a hang"


def test_good_files_with_one_thing_wrong(workshop):
    found = {}
    for name, fault, data in crafted(workshop):
        before = peak()
        try:
            attempt(workshop, TARGETS[name], data)
        except Exception as error:
            found[f"{name}: {fault}"] = f"{type(error).__name__}: {error}"
        if peak() - before > 200 << 20:
            found[f"{name}: {fault}, memory"] = f"{(peak() - before) >> 20} MB"
    assert not found, found


def test_every_folder_of_hostile_files_has_a_target():
    assert {path.parent.name for path in FILES} <= TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_cut_off_and_changed_at_random_places(name, workshop):
    """A taste of what `make fuzz` does for minutes."""
    rng = random.Random(name)
    for seed in TARGETS[name].seeds(workshop):
        for _ in range(6):
            data = bytearray(seed)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.choice(
                    (0, 10, 32, 45, 255, rng.randrange(256))
                )
            if rng.random() < 0.3:
                del data[rng.randrange(len(data)) :]
            attempt(workshop, TARGETS[name], bytes(data))
