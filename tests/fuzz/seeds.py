"""Good files for the fuzzers of native parsers: `python -m tests.fuzz.seeds TARGET FOLDER`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.fuzz.workshop import TEXT, Workshop

HOSTILE = Path(__file__).parent.parent / "hostile"


def main() -> None:
    target, out = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        files = {
            "arpa": [workshop.arpa, *sorted((HOSTILE / "arpa").iterdir())],
            "ngram": [workshop.binary],
            "text": [],
        }[target]
        texts = [path.read_bytes() for path in files] or [
            TEXT.encode(),
            "a <unk> b\n\n é\r\n".encode(),
        ]
    front = {"arpa": b"\x80", "ngram": b"", "text": b"\x07\x80"}[target]
    for number, text in enumerate(texts):
        (out / f"seed-{number}").write_bytes(front + text)


if __name__ == "__main__":
    main()
