"""Every parser against the files that once harmed one, or might: a line each, or a right answer."""

import random
import time
from pathlib import Path

import pytest
from tests.fuzz.crafted import crafted
from tests.fuzz.mutate import with_another_value
from tests.fuzz.peak import watched
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


# What people send one another; the promise is about these. Others may be shown on a page.
MODELS = {"config", "vocab", "weights", "parts", "part", "arpa", "ngram", "rnnlm"}


def most(name, size):
    """Bytes of memory that a file of so many bytes may take."""
    return 3 * size + (64 << 20) if name in MODELS else 100 * size + (200 << 20)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_hostile_file(path, workshop):
    name, data = path.parent.name, path.read_bytes()
    began = time.process_time()
    with watched() as spent:
        attempt(workshop, TARGETS[name], data)
    assert spent.bytes <= most(name, len(data)), "an absurd allocation"
    assert time.process_time() - began < 30, "a hang"


def test_good_files_with_one_thing_wrong(workshop):
    found = {}
    for name, fault, data in crafted(workshop):
        with watched() as spent:
            try:
                attempt(workshop, TARGETS[name], data)
            except Exception as error:
                found[f"{name}: {fault}"] = f"{type(error).__name__}: {error}"
        if spent.bytes > most(name, len(data)):
            found[f"{name}: {fault}, memory"] = f"{spent.bytes >> 20} MB"
    assert not found, found


def test_every_folder_of_hostile_files_has_a_target():
    assert {path.parent.name for path in FILES} <= TARGETS.keys()


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.form])
def test_one_value_is_another(name, workshop):
    """A taste of what `make fuzz` does to the JSON inside of files, whose frames stay whole."""
    rng, changed = random.Random(name), set()
    for seed in TARGETS[name].seeds(workshop):
        for _ in range(15):
            data = with_another_value(TARGETS[name].form, seed, rng)
            assert data is not None
            changed.add(data)
            attempt(workshop, TARGETS[name], data)
    assert len(changed) > 5


def test_numbers_of_any_size_are_changed():
    """What the fuzzer put into a file is the next thing that it changes there."""
    rng = random.Random(3)
    for number in ("1" + 400 * "0", "1e308"):
        file = f'{{"a": {number}}}'.encode()
        assert any(with_another_value("json", file, rng) for _ in range(100))
    longer_than_python_reads = b"1" + 5000 * b"0"
    assert with_another_value("json", longer_than_python_reads, rng) is None


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
