"""Kneser-Ney 5-grams on two public corpora, beside what KenLM's lmplz gives.

    python benchmarks/ngram_perplexity.py DATA

DATA holds rnnlm-small/{train,test} and wikitext-2/{train,test}.txt.xz. lmplz takes empty lines as
empty sentences, so they are kept. WikiText-2 has a literal <unk> for its rare words: it is the
unknown word here and is counted in training and test like any other.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from blackout.config import TextConfig
from blackout.ngram import NGram, evaluate, train

# corpus, suffix of its files, perplexity with and without unknown words by lmplz
ROWS = [
    ("rnnlm-small", "", "88.67", "74.41"),
    ("wikitext-2", ".txt.xz", "220.14", "-"),
]


def main() -> None:
    data, config = Path(sys.argv[1]), TextConfig(keep_empty=True)
    print(
        f"{'corpus':<14}{'tokens':>9}{'unknown':>9}{'with':>9}{'lmplz':>9}{'without':>9}{'lmplz':>9}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for corpus, suffix, with_unk, without_unk in ROWS:
            arpa = Path(folder) / "model.arpa"
            train(data / corpus / f"train{suffix}", arpa, config=config)
            result = evaluate(NGram.load(arpa), data / corpus / f"test{suffix}", config)
            tokens = result.words + result.sentence_ends
            print(
                f"{corpus:<14}{tokens:>9,}{result.unknown:>9,}"
                f"{result.perplexity:>9.2f}{with_unk:>9}"
                f"{result.perplexity_without_unk:>9.2f}{without_unk:>9}"
            )


if __name__ == "__main__":
    main()
