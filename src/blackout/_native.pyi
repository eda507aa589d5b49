"""Types of the native module; one section for each folder of csrc/."""

import numpy as np
import numpy.typing as npt

# csrc/text

MAX_WORD: int

class Checksum:
    def __init__(self) -> None: ...
    def update(self, data: npt.NDArray[np.uint8]) -> None: ...
    def value(self) -> int: ...

class WordCounter:
    def __init__(
        self, *, keep_empty: bool, skip_markers: bool, replace_invalid: bool, threads: int
    ) -> None: ...
    def feed(self, data: npt.NDArray[np.uint8], last: bool) -> int: ...
    def next_file(self) -> None: ...
    def result(self) -> tuple[bytes, npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]: ...

class WordMap:
    def __init__(self, words: bytes, ends: npt.NDArray[np.uint64]) -> None: ...
    def __len__(self) -> int: ...

class Encoder:
    tokens: int
    sentences: int
    unknown: int
    def __init__(
        self,
        map: WordMap,
        *,
        keep_empty: bool,
        skip_markers: bool,
        replace_invalid: bool,
        threads: int,
    ) -> None: ...
    def feed(self, data: npt.NDArray[np.uint8], last: bool) -> int: ...
    def take(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]: ...

class StreamFiller:
    def __init__(
        self,
        tokens: npt.NDArray[np.uint32],
        offsets: npt.NDArray[np.uint64],
        order: npt.NDArray[np.uint32] | None,
        batch: int,
        bptt: int,
    ) -> None: ...
    def fill(
        self,
        inputs: npt.NDArray[np.int64],
        targets: npt.NDArray[np.int64],
        mask: npt.NDArray[np.bool_],
    ) -> int: ...
    def longest(self) -> int: ...
    def state(self) -> npt.NDArray[np.uint64]: ...
    def load_state(self, state: npt.NDArray[np.uint64]) -> None: ...

def shuffled(n: int, seed: int, epoch: int) -> npt.NDArray[np.uint32]: ...
