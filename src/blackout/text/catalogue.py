"""The public corpora that ``blackout data`` knows: where they are and what they must hash to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORPORA", "Corpus", "Download", "Part"]


@dataclass(frozen=True)
class Download:
    """One file on a server: a plain text, a zip or a tar archive.

    ``sha256``: of the file itself; None where only its contents can be checked.
    """

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Part:
    """A text of a corpus and where it comes from.

    ``members``: patterns of the names inside an archive, or of a plain download's name; several
    members that match are put together in the archive's order. ``files``: how many must match.
    ``sha256`` and ``size``: of the finished text, where known.
    """

    name: str
    members: tuple[str, ...]
    sha256: str | None = None
    size: int | None = None
    files: int = 1


@dataclass(frozen=True)
class Corpus:
    """A public corpus: ``sources`` are alternatives, each of one or more downloads."""

    name: str
    sources: tuple[tuple[Download, ...], ...]
    parts: tuple[Part, ...]
    advice: str = ""


_RNNLM = (
    "https://raw.githubusercontent.com/mspandit/rnnlm/bf522566ca656fd12b6c940f073ff558e1353b87/"
)
_RNNLM_PARTS = (
    Part(
        "train",
        ("train", "*/train"),
        "ac4303ff84d8e9b9c0f9a29f6197b0a0c3ad3064c8571a87913b5868e243e6a8",
        337_922,
    ),
    Part(
        "valid",
        ("valid", "*/valid"),
        "f54feb868974fb41ecf0eede66891d1e6f68df6848beb5cf0d113285cf17c681",
        30_139,
    ),
    Part(
        "test",
        ("test", "*/test"),
        "5425234b827da5e0854c2d200c87e9d35275ae3c1610a149dd989e9a1e2f7d04",
        35_139,
    ),
)

_WIKITEXT = (
    "https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/"
    "word_language_model/data/wikitext-2/"
)
_WIKITEXT_PARTS = (
    Part(
        "train",
        ("train.txt", "*/wiki.train.tokens"),
        "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
        10_797_148,
    ),
    Part(
        "valid",
        ("valid.txt", "*/wiki.valid.tokens"),
        "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        1_121_681,
    ),
    Part(
        "test",
        ("test.txt", "*/wiki.test.tokens"),
        "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        1_256_449,
    ),
)

_BILLION = (
    "https://www.statmt.org/lm-benchmark/"
    "1-billion-word-language-modeling-benchmark-r13output.tar.gz"
)
_HELD_OUT = "*/heldout-monolingual.tokenized.shuffled/news.en.heldout-"

# Not a text: lines "user item" in the order of time, for examples/recommender.py.
_VIDEO = Part(
    "interactions",
    ("Video.txt",),
    "b7376fe24430743f411dc7f567285657b2adb3f74361cc7ba0aee94f3024b651",
    3_187_124,
)

CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            # The data that comes with the RNNLM toolkit 0.3e: first a copy in a repository, at a
            # fixed commit, then the toolkit's own archive, for which we found no published
            # checksum. The texts' hashes are those of the repository's files.
            "rnnlm-small",
            (
                tuple(Download(_RNNLM + part.name, part.sha256) for part in _RNNLM_PARTS),
                (Download("http://www.fit.vutbr.cz/~imikolov/rnnlm/rnnlm-0.3e.tgz"),),
            ),
            _RNNLM_PARTS,
        ),
        Corpus(
            # The texts in PyTorch's examples, at a fixed commit, equal the members of the archive
            # its authors published: their SHA-1 are those in GluonNLP's loader. The archive's own
            # SHA-256 is the one of LanguageModelingDatasets.jl. Its first home, an S3 bucket of
            # MetaMind's, is closed; this is one of its authors' sites.
            "wikitext-2",
            (
                tuple(
                    Download(f"{_WIKITEXT}{part.name}.txt", part.sha256) for part in _WIKITEXT_PARTS
                ),
                (
                    Download(
                        "https://wikitext.smerity.com/wikitext-2-v1.zip",
                        "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
                    ),
                ),
            ),
            _WIKITEXT_PARTS,
            advice="blank lines are part of this corpus: use it with --keep-empty",
        ),
        Corpus(
            # The archive's hash is the one Lingvo's download_lm1b.py checks. Shard 0 of 50 of the
            # held-out text is the test text of the literature (6,075 sentences); another shard
            # serves for validation.
            "billion",
            (
                (
                    Download(
                        _BILLION,
                        "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
                    ),
                ),
            ),
            (
                Part(
                    "train",
                    ("*/training-monolingual.tokenized.shuffled/news.en-000??-of-00100",),
                    files=99,
                ),
                Part("valid", (f"{_HELD_OUT}00001-of-00050",)),
                Part("test", (f"{_HELD_OUT}00000-of-00050",)),
            ),
        ),
        Corpus(
            # Reviews of video games at Amazon (31,013 users, 23,715 items), as the authors of
            # SASRec prepared them, at a fixed commit of their repository.
            "amazon-video",
            (
                (
                    Download(
                        "https://raw.githubusercontent.com/kang205/SASRec/"
                        "e3738967fddab206d6eeb4fda433e7a7034dd8b1/data/Video.txt",
                        _VIDEO.sha256,
                    ),
                ),
            ),
            (_VIDEO,),
            advice="lines of user and item, for examples/recommender.py; not a text to train on",
        ),
    )
}
