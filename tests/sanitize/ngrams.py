"""Drives the native n-gram code, and files made to do harm: `make sanitize` runs it.

Each crafted file has right checksums and a few wrong numbers. It must be refused, or give
probabilities; the sanitizers see whether anything was read that is not there.

    python tests/sanitize/ngrams.py build/sanitize-address/_native….so
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from typing import Any

import numpy as np

HEADER = struct.Struct("<8s8I10Q5Q")  # csrc/ngram/model_file.cpp
NUMBERS = [0, 1, 2, 3, 1 << 31, (1 << 32) - 1, 1 << 61, 1 << 62, 1 << 63, (1 << 64) - 1]
CRAFTED = 3000


def estimate(native: Any, folder: str) -> bytes:
    """A model of three words' sentences, in the binary form."""
    text = b"the cat sat\nthe dog sat\na cat ran\n\n" * 5
    estimator = native.NGramEstimator(
        order=3, memory=1 << 16, threads=2, folder=folder, prune=[0, 0, 0],
        fallback=(0.5, 1.0, 1.5), keep_empty=False, skip_markers=False, replace_invalid=False,
    )  # fmt: skip
    estimator.feed(np.frombuffer(text, np.uint8), True)
    arpa: list[bytes] = []
    estimator.estimate(arpa.append, None)
    reader = native.ArpaReader()
    reader.feed(np.frombuffer(b"".join(arpa), np.uint8), True)
    binary: list[bytes] = []
    reader.take().save(binary.append)
    return b"".join(binary)


def checksum(native: Any, data: bytes) -> int:
    total = native.Checksum()
    total.update(np.frombuffer(data, np.uint8))
    return int(total.value())


def crafted(native: Any, rng: np.random.Generator, good: bytes) -> bytes:
    """The model with some numbers changed, and both checksums right."""
    fields, body = list(HEADER.unpack_from(good)), bytearray(good[HEADER.size :])
    for _ in range(int(rng.integers(0, 3))):
        place = int(rng.integers(3, 22))
        limit = (1 << 32) - 1 if place < 9 else (1 << 64) - 1
        fields[place] = NUMBERS[rng.integers(len(NUMBERS))] & limit
    for _ in range(int(rng.integers(0, 4))):
        place = 4 * int(rng.integers(len(body) // 4))
        body[place : place + 4] = (NUMBERS[rng.integers(6)] & 0xFFFFFFFF).to_bytes(4, "little")
    if rng.random() < 0.3:
        del body[64 * int(rng.integers(1, len(body) // 64)) :]
    fields[21] = HEADER.size + len(body)
    fields[22], fields[23] = checksum(native, bytes(body)), 0
    fields[23] = checksum(native, HEADER.pack(*fields))
    return HEADER.pack(*fields) + bytes(body)


def main() -> None:
    from kernels import load  # the driver beside this one; pytest, which looks in here, lacks it

    native, rng = load(sys.argv[1]), np.random.default_rng(0)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        good = estimate(native, folder)
        path = os.path.join(folder, "model.bin")
        for i in range(CRAFTED):
            with open(path, "wb") as file:
                file.write(crafted(native, rng, good) if i else good)
            try:
                model = native.NGramModel.open(os.fsencode(path), True)
                ids = rng.integers(model.counts[0], size=30, dtype=np.uint32)
                scores = [model.score(ids, bos=True), model.score_text(ids)]
                assert all((s <= 0).all() and np.isfinite(s).all() for s in scores)
                model.score_all(ids[:2], bos=False)
                model.words()
            except (ValueError, RuntimeError):
                assert i > 0, "the good model was refused"
                refused += 1
    print(f"{CRAFTED} crafted n-gram models, {refused} refused")
    assert CRAFTED / 2 < refused < CRAFTED


if __name__ == "__main__":
    main()
