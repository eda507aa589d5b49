"""N-best lists of a made-up recogniser that mishears a text, to try rescoring with.

    python examples/noisy_nbest.py [FOLDER]

Writes the text that ships with Python (train.txt, valid.txt, test.txt), and for the first
sentences of valid and test the lists (valid.jsonl, test.jsonl) and the references (valid.refs,
test.refs). The recogniser hears four candidates for each word, the right one among them and
usually but not always the most probable, and lists the sentences it finds most likely.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from blackout.text.bundled import bundled_text

UTTERANCES = 200
HYPOTHESES = 50


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "nbest-demo")
    texts = bundled_text(folder)
    words = texts["train"].read_text(encoding="utf-8").split()  # frequent words come up more often
    rng = random.Random(1)
    for part in ("valid", "test"):
        lines = texts[part].read_text(encoding="utf-8").splitlines()
        sentences = [s for line in lines if 5 <= len(s := line.split()) <= 30][:UTTERANCES]
        with (folder / f"{part}.jsonl").open("w", encoding="utf-8") as lists:
            for number, sentence in enumerate(sentences):
                record = {"utt": f"{part}{number}", "hyps": mishear(sentence, words, rng)}
                lists.write(json.dumps(record, ensure_ascii=False) + "\n")
        with (folder / f"{part}.refs").open("w", encoding="utf-8") as refs:
            for number, sentence in enumerate(sentences):
                refs.write(" ".join([f"{part}{number}", *sentence]) + "\n")
    print(f"wrote {folder}")


def mishear(sentence: list[str], words: list[str], rng: random.Random) -> list[dict[str, object]]:
    """The acoustically best hypotheses of a search that keeps as many at each word."""
    beam: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for word in sentence:
        heard = {other: rng.gauss(-4, 2) for other in rng.sample(words, 3)}
        heard[word] = rng.gauss(0, 2)
        longer = [(score + s, (*said, w)) for score, said in beam for w, s in heard.items()]
        beam = sorted(longer, reverse=True)[:HYPOTHESES]
    return [{"text": " ".join(said), "am": round(score, 3)} for score, said in beam]


if __name__ == "__main__":
    main()
