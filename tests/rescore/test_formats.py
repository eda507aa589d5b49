"""Every format is read as it is meant, and written so that it is read again."""

import gzip
import json
import math

import pytest

from blackout.errors import UserError
from blackout.rescore.formats import detect_format, read_nbest, write_best, write_nbest

LN10 = math.log(10)


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def kaldi(folder):
    return write(
        folder / "kaldi",
        {
            "text": "utt-a-1 the cat\nutt-a-10\nutt-a-2 a cat\nb-1 <s> café 　x </s>\n",
            "ac_cost": "utt-a-1 10.5\nutt-a-2 11\nutt-a-10 12\nb-1 -3e1\n",
            "lm_cost": "utt-a-1 1\nutt-a-2 2.25\nutt-a-10 3\nb-1 4\n",
        },
    )


def srilm(folder):
    return write(
        folder / "srilm",
        {
            "a.nbest.gz": "-10.5 -1 2 the cat\n-12 -2.5 0\n",
            "b.score": "-3 -4 4 <s> café 　x </s>\r\n",
        },
    )


def srilm_list(folder):
    lists = srilm(folder)
    path = folder / "listed"
    path.write_text(f"srilm/a.nbest.gz\n{lists / 'b.score'}\n")
    return path


def srilm_file(folder):
    return srilm(folder) / "a.nbest.gz"


def espnet(folder):
    return write(
        folder / "espnet",
        {
            "1best_recog/text": "a the cat\nb café 　x\n",
            "1best_recog/score": "a tensor(-1.5)\nb tensor(-2.5, device='cuda:0')\n",
            "1best_recog/token": "a th e cat\nb c afé 　x\n",
            "2best_recog/text": "a\n",
            "2best_recog/score": "a -3.25\n",
            "2best_recog/token": "a\n",
        },
    )


def espnet_parts(folder):
    whole = espnet(folder)
    whole.rename(folder / "output.2")
    other = {"1best_recog/text": "c one\n", "1best_recog/score": "c -1\n"}
    write(folder / "output.10", other)
    return folder


def jsonl(folder):
    lines = [
        {"utt": "a", "more": 1, "hyps": [{"text": "the cat", "am": -10.5, "lm": -1, "x": [2]}]},
        {"utt": "b", "hyps": [{"text": ""}, {"text": "<s> café 　x </s>", "am": 3, "lm": -4}]},
    ]
    write(folder, {"lists.jsonl": "\n".join(map(json.dumps, lines)) + "\n\n"})
    return folder / "lists.jsonl"


FORMATS = {
    "kaldi": kaldi, "srilm": srilm, "srilm list": srilm_list, "srilm file": srilm_file,
    "espnet": espnet, "espnet parts": espnet_parts, "jsonl": jsonl,
}  # fmt: skip


def content(nbest):
    return {
        utterance.name: [
            (h.words, pytest.approx(h.acoustic, rel=1e-9), pytest.approx(h.lm, rel=1e-9))
            for h in utterance.hypotheses
        ]
        for utterance in nbest.utterances
    }


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("base", [None, "e", "10"])
def test_round_trip(tmp_path, kind, base):
    nbest = read_nbest(FORMATS[kind](tmp_path), log_base=base)
    assert nbest.format == kind.split()[0]
    for h in nbest.hypotheses:
        h.total = h.acoustic + h.lm
    expected = content(nbest)
    out = tmp_path / ("out.gz" if kind == "srilm file" else "out")
    write_nbest(nbest, out)
    again = read_nbest(out, nbest.format, log_base=base)
    if kind == "srilm file":  # which is named by its file
        expected["out"] = expected.pop("a")
    assert content(again) == expected
    # the texts come out as they went in, whatever counts as a word of them
    texts = [[h.text for h in u.hypotheses] for u in nbest.utterances]
    written = {u.name: [h.text for h in u.hypotheses] for u in again.utterances}
    assert sorted(written.values()) == sorted(texts)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_format_is_recognised(tmp_path, kind):
    assert detect_format(FORMATS[kind](tmp_path)) == kind.split()[0]


def test_kaldi_costs_are_negated_and_numbers_are_ranks(tmp_path):
    nbest = read_nbest(kaldi(tmp_path))
    first, second = nbest.utterances
    assert (first.name, second.name) == ("utt-a", "b")
    assert [h.words for h in first.hypotheses] == [("the", "cat"), ("a", "cat"), ()]
    assert [h.acoustic for h in first.hypotheses] == [-10.5, -11, -12]
    assert [h.lm for h in first.hypotheses] == [-1, -2.25, -3]
    assert second.hypotheses[0].words == ("café", "　x")  # only ASCII space separates words
    assert second.hypotheses[0].acoustic == 30


def test_kaldi_archives_one_by_one(tmp_path):
    folder = kaldi(tmp_path)
    text, acoustic, lm = (folder / name for name in ("text", "ac_cost", "lm_cost"))
    whole = content(read_nbest(folder))
    assert content(read_nbest(text, acoustic=acoustic, lm=lm)) == whole
    plain = read_nbest(text, "kaldi")
    assert all(h.acoustic == h.lm == 0 for h in plain.hypotheses)
    for old, new in {"text": "words_text", "ac_cost": "acwt", "lm_cost": "lmwt.lmonly"}.items():
        (folder / old).rename(folder / new)
    assert content(read_nbest(folder)) == whole


def test_kaldi_totals_are_costs(tmp_path):
    nbest = read_nbest(kaldi(tmp_path), log_base="10")
    for h in nbest.hypotheses:
        h.total = -2 * LN10
    write_nbest(nbest, tmp_path / "out")
    costs = (tmp_path / "out/total_cost").read_text().splitlines()
    assert costs == ["utt-a-1 2", "utt-a-2 2", "utt-a-10 2", "b-1 2"]


def test_srilm_scores_are_base_10(tmp_path):
    nbest = read_nbest(srilm(tmp_path))
    first, second = nbest.utterances
    assert (first.name, second.name) == ("a", "b")
    assert [h.acoustic for h in first.hypotheses] == [-10.5 * LN10, -12 * LN10]
    assert [h.lm for h in first.hypotheses] == [-1 * LN10, -2.5 * LN10]
    assert second.hypotheses[0].words == ("café", "　x")
    first.hypotheses[0].lm = -7 * LN10
    write_nbest(nbest, tmp_path / "out")
    lines = gzip.decompress((tmp_path / "out/a.nbest.gz").read_bytes())
    assert lines == b"-10.5 -7 2 the cat\n-12 -2.5 0\n"
    assert (tmp_path / "out/b.score").read_text() == "-3 -4 4 <s> café 　x </s>\n"


def test_espnet_folders_are_ranks(tmp_path):
    nbest = read_nbest(espnet(tmp_path))
    assert [h.acoustic for h in nbest.hypotheses] == [-1.5, -3.25, -2.5]
    for h, total in zip(nbest.hypotheses, [-9, -8, -7], strict=True):
        h.total, h.lm = total, total / 2
    write_nbest(nbest, tmp_path / "out")
    files = {
        "1best_recog/text": "a\nb café 　x\n",
        "1best_recog/score": "a -8\nb -7\n",
        "1best_recog/lm_score": "a -4\nb -3.5\n",
        "1best_recog/token": "a\nb c afé 　x\n",
        "2best_recog/text": "a the cat\n",
        "2best_recog/score": "a -9\n",
        "2best_recog/lm_score": "a -4.5\n",
        "2best_recog/token": "a th e cat\n",
    }
    assert {name: (tmp_path / "out" / name).read_text() for name in files} == files


def test_espnet_parts_are_one(tmp_path):
    nbest = read_nbest(espnet_parts(tmp_path))
    assert [u.name for u in nbest.utterances] == ["a", "b", "c"]


def test_json_keeps_what_it_does_not_know(tmp_path):
    nbest = read_nbest(jsonl(tmp_path))
    for number, h in enumerate(nbest.hypotheses):
        h.lm, h.total = number, -number
    write_nbest(nbest, tmp_path / "out.jsonl")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    hyp = {"text": "the cat", "am": -10.5, "lm": 0.0, "x": [2], "old_lm": -1, "total": 0.0}
    assert first == {"utt": "a", "more": 1, "hyps": [hyp]}
    assert second["hyps"][0] == {"text": "", "lm": 1.0, "total": -1.0}


def test_the_best_of_each_utterance(tmp_path):
    nbest = read_nbest(kaldi(tmp_path))
    for h, total in zip(nbest.hypotheses, [-3, -1, -2, 0], strict=True):
        h.total = total
    write_best(nbest, tmp_path / "best")
    assert (tmp_path / "best").read_text() == "utt-a a cat\nb café 　x\n"


BAD = {
    "kaldi": [
        ({"text": "a-1 x\n", "ac_cost": "a-1 ten\n"}, "ac_cost: line 1", "'ten'"),
        ({"text": "a-1 x\n", "ac_cost": "a-1\n"}, "ac_cost: line 1", "not a number"),
        ({"text": "a-1 x\n", "ac_cost": "a-1 nan\n"}, "ac_cost: line 1", "'nan'"),
        ({"text": "a-1 x\na-2 y\n", "ac_cost": "a-1 1\n"}, "text: line 2", "a-2 is not in"),
        ({"text": "a-1 x\n", "lm_cost": "a-1 1\na-2 1\n"}, "lm_cost: line 2", "a-2 is not in"),
        ({"text": "a-1 x\na-1 y\n"}, "text: line 2", "also on line 1"),
        ({"text": "a-1 x\nb y\n"}, "text: line 2", "'b'"),
        ({"text": "a-1 x\n-1 y\n"}, "text: line 2", "'-1'"),
        ({"text": "a-1 x </s> y\n"}, "text: line 1", "</s>"),
        ({"text": "\n"}, "text", "nothing in it"),
        ({"text": "a-1 x\0y\n"}, "text: line 1", "NUL"),
    ],
    "srilm": [
        ({"a": "-1 -2 1 x\n-1 two 1 y\n"}, "a: line 2", "lscore 'two'"),
        ({"a": "-1 -2 1 x\ninf -2 1 y\n"}, "a: line 2", "ascore 'inf'"),
        ({"a": "-1 -2 1 x\n-1 -2 1.5 y\n"}, "a: line 2", "nwords '1.5'"),
        ({"a": "-1 -2 1 x\n-1 -2\n"}, "a: line 2", "nwords"),
        ({"a": "-1 -2 1 x\n", "b": ""}, "b: ", "no hypotheses"),
        ({"a": "NBestList1.0\n(-123) x\n"}, "a: line 1", "NBestList1.0"),
        ({"a": "-1 -2 1 x\n", "a.gz": "-1 -2 1 x\n"}, "a.gz", "same utterance"),
        ({}, "no n-best lists"),
    ],
    "espnet": [
        ({"1best_recog/text": "a x\n", "1best_recog/score": "a no\n"}, "score: line 1", "'no'"),
        ({"1best_recog/text": "a x\n"}, "score", "cannot be read"),
        ({"1best_recog/text": "a x\nb y\n", "1best_recog/score": "a 1\n"}, "text: line 2"),
        ({"1best_recog/text": "a x\n", "1best_recog/score": "a 1\nb 1\n"}, "score: line 2"),
        ({"2best_recog/text": "a x\n"}, "1best_recog"),
        (
            {
                "1best_recog/text": "a x\n", "1best_recog/score": "a 1\n",
                "3best_recog/text": "a x\n", "3best_recog/score": "a 1\n",
            },
            "no 2best_recog",
        ),
        (
            {
                "1best_recog/text": "a x\n", "1best_recog/score": "a 1\n",
                "2best_recog/text": "b x\n", "2best_recog/score": "b 1\n",
            },
            "text: line 1", "b is not in 1best_recog",
        ),
    ],
    "jsonl": [
        ({"": '{"utt": "a", "hyps": [{"text": "x"}]}\n{"utt"\n'}, "line 2", "not JSON"),
        ({"": "[]"}, "line 1", "not a JSON object"),
        ({"": '{"hyps": []}'}, "line 1", "'utt'"),
        ({"": '{"utt": 7, "hyps": []}'}, "line 1", "'utt' is not text"),
        ({"": '{"utt": "a b", "hyps": [{"text": "x"}]}'}, "line 1", "one word"),
        ({"": '{"utt": "a"}'}, "line 1", "'hyps'"),
        ({"": '{"utt": "a", "hyps": []}'}, "line 1", "no hypotheses"),
        ({"": '{"utt": "a", "hyps": [1]}'}, "line 1", "a hypothesis"),
        ({"": '{"utt": "a", "hyps": [{"am": 1}]}'}, "line 1", "'text'"),
        ({"": '{"utt": "a", "hyps": [{"text": "x", "am": "1"}]}'}, "line 1", "'am'"),
        ({"": '{"utt": "a", "hyps": [{"text": "x", "am": true}]}'}, "line 1", "'am'"),
        ({"": '{"utt": "a", "hyps": [{"text": "x", "lm": NaN}]}'}, "line 1", "'lm'"),
        ({"": '{"utt": "a", "hyps": [{"text": "x", "lm": 1' + "0" * 400 + "}]}"}, "'lm'"),
        ({"": '{"utt": "a", "hyps": [{"text": "x"}]}\n' * 2}, "line 2", "also on line 1"),
        ({"": "\n"}, "no hypotheses"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("format", "files", "named"),
    [(format, files, named) for format, cases in BAD.items() for files, *named in cases],
)
def test_what_is_wrong_is_named(tmp_path, format, files, named):
    path = tmp_path / "lists"
    if "" in files:
        path.write_text(files[""])
    else:
        path.mkdir()
        write(path, files)
    with pytest.raises(UserError) as error:
        read_nbest(path, format)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    for text in named:
        assert text in message


@pytest.mark.parametrize("content", ["a-1 the cat\n", "the cat\n", ""])
def test_a_format_in_doubt_is_not_guessed(tmp_path, content):
    (tmp_path / "lists").write_text(content)
    with pytest.raises(UserError, match="lists"):
        read_nbest(tmp_path / "lists")
    with pytest.raises(UserError, match="cannot tell"):
        read_nbest(tmp_path)


def test_a_list_of_files_that_are_not_there(tmp_path):
    path = srilm_list(tmp_path)
    (tmp_path / "srilm/b.score").unlink()
    with pytest.raises(UserError, match=r"listed: line 2: .*b\.score"):
        read_nbest(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "lists.jsonl"
    path.write_bytes(b'{"utt": "a", "hyps": [{"text": "x"}]}\n\xff\n')
    with pytest.raises(UserError, match="line 2: invalid UTF-8"):
        read_nbest(path)
    packed = tmp_path / "lists.jsonl.gz"
    packed.write_bytes(gzip.compress(b"{}" * 1000)[:-9])
    with pytest.raises(UserError, match=r"damaged or incomplete gz"):
        read_nbest(packed)


def test_costs_need_kaldi(tmp_path):
    path = jsonl(tmp_path)
    with pytest.raises(UserError, match="kaldi"):
        read_nbest(path, "jsonl", acoustic=path)
