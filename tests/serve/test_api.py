"""The HTTP API: the command line's numbers, for many at once, and a sentence for every fault."""

from __future__ import annotations

import http.client
import json
import math
import shutil
import socket
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from blackout.cli.main import main
from blackout.models import load
from blackout.rescore.formats.jsonl import from_records
from blackout.rescore.score import rescore
from blackout.rescore.weights import Weights
from blackout.serve import listen
from blackout.serve.answers import Asked, rescore_lists
from blackout.serve.gate import Limits
from blackout.serve.questions import MOST_GENERATED, RescoreQuestion
from blackout.serve.shelf import Shelf

TEXT = "the cat sees a house\nthe zebra has\n"
NAMES = ["small", "three", "small+three"]


def test_models_are_named_and_described(client):
    status, found = client.ask("/v1/models")
    assert status == 200
    assert [model["name"] for model in found["models"]] == NAMES
    assert [model["kind"] for model in found["models"]] == ["network", "n-gram", "mixture"]
    assert found["models"][2]["weight"] == 0.3
    assert client.ask("/healthz") == (200, {"status": "ok"})


def test_scores_are_those_of_the_command_line(client, trained, tmp_path, capsys):
    (tmp_path / "text").write_text(TEXT)
    dump = tmp_path / "dump"
    run = [str(trained / "small"), str(tmp_path / "text"), "--probs", str(dump), "--json"]
    assert main(["eval", *run, "--threads", "1"]) == 0
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])
    lines = [line.split("\t") for line in dump.read_text().splitlines()]
    status, found = client.ask("/v1/score", {"text": TEXT, "top": 3})
    assert status == 200
    assert found["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-5)
    assert (found["words"], found["unknown"]) == (expected["words"], expected["unknown"])
    logs = [token["log10"] for token in found["tokens"]]
    assert logs == pytest.approx([float(log) for _, log in lines], abs=1e-5)
    for token in found["tokens"]:
        assert token["probability"] == pytest.approx(10 ** token["log10"])
        best = [entry["probability"] for entry in token["best"]]
        assert best == sorted(best, reverse=True)
        assert (token["rank"] == 1) == (token["probability"] == best[0])


def test_a_mixture_is_what_mix_makes(client, trained, lab, tmp_path, capsys):
    (tmp_path / "text").write_text(TEXT)
    run = [str(trained / "small"), str(trained / "three.arpa"), "--test", str(tmp_path / "text")]
    assert main(["mix", *run, "--weights", "0.3", "0.7", "--threads", "1", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])["perplexity"]
    _, found = client.ask("/v1/score", {"model": "small+three", "text": TEXT})
    assert found["perplexity"] == pytest.approx(expected, rel=1e-5)
    _, ngram = client.ask("/v1/score", {"model": "three", "text": TEXT})
    _, same = client.ask("/v1/score", {"model": "small+three", "text": TEXT, "weight": 0})
    assert same["perplexity"] == pytest.approx(ngram["perplexity"], rel=1e-6)


def test_next_words_are_the_softmax_after_the_text(client, shelf):
    _, found = client.ask("/v1/next", {"text": "the cat", "top": 5})
    model = shelf.find("small").network
    ids = torch.tensor([[0], *([i] for i in model.vocab.ids(["the", "cat"]))])
    with torch.no_grad():
        hidden, _ = model(ids, model.initial_state(1))
        expected = model.output.log_prob(hidden[-1])[0].exp()
    assert len(found["words"]) == 5
    for entry in found["words"]:
        place = model.vocab.id(entry["word"])
        assert entry["probability"] == pytest.approx(float(expected[place]), rel=1e-4)
    _, begun = client.ask("/v1/next", {"text": "the cat", "prefix": "s", "top": 50})
    assert sorted(entry["word"] for entry in begun["words"]) == ["sees", "small"]


def test_generation_is_streamed_and_is_that_of_the_command_line(client, trained, capsys):
    question = {"prompt": "the cat", "words": 12, "temperature": 0.8, "top_k": 6, "seed": 3}
    status, lines = client.ask("/v1/generate", question)
    assert status == 200
    assert lines[-1] == {"done": True}
    text = "the cat" + "".join(line["text"] for line in lines[:-1])
    options = ["--prompt", "the cat", "--words", "12", "--temperature", "0.8", "--top-k", "6"]
    assert main(["generate", str(trained / "small"), *options, "--seed", "3"]) == 0
    assert text.rstrip("\n") == capsys.readouterr().out.rstrip("\n")


def test_rescored_lists_are_those_of_the_command_line(client, trained, tmp_path, capsys):
    hyps = [{"text": "the cat sees", "am": -3.0, "lm": -1.0}, {"text": "cat the has", "am": -2.5}]
    record = {"utt": "a", "hyps": hyps}
    (tmp_path / "nbest.jsonl").write_text(json.dumps(record) + "\n")
    out = tmp_path / "out.jsonl"
    run = [str(trained / "small"), str(tmp_path / "nbest.jsonl"), "--out", str(out)]
    more = ["--ngram", str(trained / "three.arpa"), "--weight", "0.3", "--lm-weight", "0.7"]
    assert main(["rescore", *run, *more, "--threads", "1"]) == 0
    question = {"model": "small+three", "utterances": [record], "weights": {"lm_weight": 0.7}}
    _, found = client.ask("/v1/rescore", question)
    (utterance,) = found["utterances"]
    expected = json.loads(out.read_text())["hyps"]
    totals = [hypothesis["total"] for hypothesis in expected]
    assert [h["total"] for h in utterance["hyps"]] == pytest.approx(totals)
    assert utterance["best"] == totals.index(max(totals))


def test_near_words_are_near_by_cosine(client, shelf):
    model = shelf.find("small").network
    _, found = client.ask("/v1/near", {"word": "cat", "top": 4})
    for table, side in ((model.embedding.weight, "input"), (model.output.weight, "output")):
        cosines = torch.cosine_similarity(table, table[model.vocab.id("cat")][None])
        cosines[model.vocab.id("cat")] = -2
        best = cosines.topk(4)
        assert [entry["word"] for entry in found[side]] == [
            model.vocab.word(i) for i in best.indices.tolist()
        ]
        assert [e["cosine"] for e in found[side]] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_curves_of_a_run(client):
    _, found = client.ask("/v1/models/small/curves")
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2]
    assert all(epoch["valid_perplexity"] > 1 for epoch in found["epochs"])
    assert client.ask("/v1/models/three/curves")[1]["epochs"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "sentence"),
    [
        ("/v1/score", b"{", 400, "the body is not JSON"),
        ("/v1/score", b"[]", 400, "not a JSON object"),
        ("/v1/score", b"\xff", 400, "not UTF-8"),
        ("/v1/score", b"[" * 100_000, 400, "brackets"),
        ("/v1/score", b"{}", 400, "text is missing"),
        ("/v1/score", b'{"text": 3}', 400, "text is not text"),
        ("/v1/score", b'{"text": "\\ud800"}', 400, "half a character"),
        ("/v1/score", b'{"text": "a </s> b"}', 400, "a literal </s>"),
        ("/v1/score", b'{"text": "a", "tpo": 3}', 400, "'tpo' is none of"),
        ("/v1/score", b'{"text": "a", "top": 1e9}', 400, "top is not a whole number"),
        ("/v1/score", b'{"text": "a", "top": true}', 400, "top is not a whole number"),
        ("/v1/score", b'{"text": "a", "top": 51}', 400, "top is 51, must be from 0 to 50"),
        ("/v1/score", b'{"text": "a", "model": "none"}', 404, "there is no model 'none'"),
        ("/v1/score", b'{"text": "a", "weight": 0.5}', 400, "small is not a mixture"),
        ("/v1/generate", b'{"temperature": NaN}', 400, "temperature is nan"),
        ("/v1/generate", b'{"words": 0}', 400, "words is 0"),
        ("/v1/rescore", b'{"utterances": [{"utt": "a"}]}', 400, "utterances[0]: has no 'hyps'"),
        ("/v1/rescore", b'{"utterances": [], "weights": {"x": 1}}', 400, "'x' is none of"),
        ("/v1/near", b'{"word": "xylophone"}', 404, "does not know the word 'xylophone'"),
        ("/v1/near", b'{"word": "cat", "model": "three"}', 400, "three is an n-gram"),
        ("/v1/nothing", b"{}", 404, "there is no such page"),
        ("/v1/score/", b"{}", 404, "there is no such page"),
        ("/v1/models", b"{}", 405, "POST is not answered here"),
    ],
)
def test_a_fault_gets_a_sentence(client, path, body, status, sentence):
    found, answer = client.ask(path, body=body)
    assert found == status
    assert list(answer) == ["error"]
    assert sentence in answer["error"]


def test_an_empty_text_is_no_fault(client):
    assert client.ask("/v1/score", {"text": "\n \n"})[1]["tokens"] == []
    for model in NAMES:
        assert len(client.ask("/v1/next", {"model": model})[1]["words"]) == 10


def test_sizes_are_limited(shelf, serve):
    with serve(shelf, Limits(body=300, words=6)) as client:
        status, answer = client.ask("/v1/score", {"text": "the " * 7})
        assert (status, "8 words" in answer["error"]) == (413, True)
        assert client.ask("/v1/generate", {"prompt": "the " * 7})[0] == 413
        hyps = [{"utt": "a", "hyps": [{"text": "a " * 40}, {"text": "a " * 80}]}]
        assert client.ask("/v1/rescore", {"utterances": hyps})[0] == 413
        status, answer = client.ask("/v1/score", body=b"x" * 301)
        assert (status, "300 bytes" in answer["error"]) == (413, True)
        chunked = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as raw:
            raw.sendall(chunked.encode() + b"12d\r\n" + b"x" * 301 + b"\r\n0\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_numbers_and_time_are_limited(shelf, serve):
    """Questions that never come to their end keep others out, until their time is over."""
    head = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    limits = Limits(seconds=0.5, at_a_time=2)
    with serve(shelf, limits) as client:
        slow = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(2)]
        for raw in slow:
            raw.sendall(head.encode())
        for _ in range(100):
            status, answer = client.ask("/v1/models")
            if status == 429:
                break
        assert status == 429
        assert "2 questions of yours" in answer["error"]
        assert client.headers["retry-after"] == "1"
        assert client.ask("/healthz")[0] == 200
        for raw in slow:
            assert raw.recv(100).startswith(b"HTTP/1.1 503 ")
            raw.close()
        assert client.ask("/v1/models")[0] == 200
    with serve(shelf, Limits(in_all=0)) as client:
        status, answer = client.ask("/v1/models")
        assert (status, answer["error"]) == (503, "the server is busy; try again")


def test_who_may_ask(shelf, serve, client):
    evil = {"Host": "evil.example"}
    assert client.ask("/v1/models", headers=evil)[0] == 403
    assert client.ask("/", headers=evil)[0] == 403
    assert client.ask("/v1/models", headers={"Host": f"127.0.0.2:{client.port}"})[0] == 200
    other = {"Origin": "http://evil.example"}
    assert client.ask("/v1/score", {"text": "a"}, headers=other)[0] == 403
    own = {"Origin": f"http://127.0.0.1:{client.port}"}
    assert client.ask("/v1/score", {"text": "a"}, headers=own)[0] == 200
    assert not [name for name in client.headers if name.startswith("access-control")]
    with serve(shelf, token="secret") as guarded:
        for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "Basic secret"}):
            assert guarded.ask("/v1/models", headers=headers)[0] == 401
        assert guarded.ask("/v1/models", headers={"Authorization": "Bearer sécret"})[0] == 401
        assert guarded.ask("/v1/models", headers={"Authorization": "Bearer secret"})[0] == 200
        assert (
            guarded.ask("/v1/models", headers={**evil, "Authorization": "Bearer secret"})[0] == 200
        )
        assert guarded.ask("/healthz")[0] == 200


def test_many_at_once_get_the_answers_they_get_alone(client):
    texts = [f"the {a} sees a {b}" for a in ("cat", "dog", "bird") for b in ("house", "tree")]
    questions = [
        (path, {"model": model, **more})
        for model in NAMES
        for text in texts
        for path, more in (
            ("/v1/score", {"text": text, "top": 2}),
            ("/v1/next", {"text": text}),
            ("/v1/generate", {"prompt": text, "words": 5, "seed": 7}),
        )
    ]
    alone = [client.ask(*question) for question in questions]
    clients = [type(client)(client.port) for _ in questions]
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(c.ask, *q) for c, q in zip(clients, questions, strict=True)]
        together = [one.result() for one in asked]
    for before, after in zip(alone, together, strict=True):
        assert flat(before) == pytest.approx(flat(after), rel=1e-4)


def flat(answer):
    """The numbers of an answer, and a number for each word."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return [number for part in answer for number in flat(part)]
    return [float(hash(answer) % 1000) if isinstance(answer, str) else float(answer)]


def test_who_hangs_up_is_not_computed_for(client):
    """A reader that leaves takes its words out of the queue: others are not kept waiting."""
    body = json.dumps({"words": MOST_GENERATED}).encode()
    head = f"POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", client.port)) as raw:
            raw.sendall(head.encode() + body)
            assert raw.recv(10)
    assert client.ask("/v1/next", {"text": "the"})[0] == 200
    deadline = time.monotonic() + 20
    while threads_busy() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not threads_busy()


def threads_busy():
    """Whether a worker is inside a piece of work."""
    import sys

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    busy = 0
    for ident, frame in frames.items():
        if names.get(ident) == "models":
            while frame is not None and frame.f_code.co_name != "wait":
                frame = frame.f_back
            busy += frame is None
    return busy


def test_no_answer_says_where_things_lie(trained, lab, tmp_path, serve, capsys):
    """A network that gives no probabilities is a fault of the server, told without its place."""
    model = load(trained / "small")
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    with serve(Shelf([("small", model)])) as client:
        status, answer = client.ask("/v1/score", {"text": "the cat"})
        assert status == 500
        assert "log-probability nan" in answer["error"]
        assert str(trained) not in answer["error"]
        _, lines = client.ask("/v1/generate", {"words": 3})
        assert "log-probability nan" in lines[-1]["error"]
        assert str(trained) not in json.dumps(lines)
        assert str(trained) not in json.dumps(client.ask("/v1/models")[1])


@pytest.mark.parametrize("folder", [".", "../small", "../../at/small", None])
def test_a_damaged_run_is_told_without_its_place(trained, tmp_path, serve, monkeypatch, folder):
    """Wherever the server was started, and however the folder was named."""
    shutil.copytree(trained / "small", tmp_path / "at" / "small")
    monkeypatch.chdir(tmp_path / "at" / "small")
    (tmp_path / "at" / "small" / "metrics.jsonl").write_text("[]\n")
    place = tmp_path / "at" / "small" if folder is None else Path(folder)
    with serve(Shelf([("small", load(place))])) as client:
        status, answer = client.ask("/v1/models/small/curves")
    sentence = "metrics.jsonl: line 1: damaged: not an event"
    assert status == 500
    assert answer["error"] == (sentence if folder == "." else f"small/{sentence}")


def test_openapi_describes_every_question(client):
    _, found = client.ask("/openapi.json")
    assert found["openapi"].startswith("3.1")
    score = found["paths"]["/v1/score"]["post"]
    fields = score["requestBody"]["content"]["application/json"]["schema"]
    assert fields["required"] == ["text"]
    assert fields["properties"]["top"]["maximum"] == 50
    refusals = {"400", "401", "403", "404", "413", "429", "503"}
    assert set(score["responses"]) == {"200"} | refusals
    assert "401" in found["paths"]["/v1/models"]["get"]["responses"]
    for path in ("/v1/next", "/v1/generate", "/v1/rescore", "/v1/models", "/healthz"):
        assert path in found["paths"]


def test_models_of_one_name_are_told_apart(shelf):
    network = shelf.find("small").network
    assert Shelf([("a", network), ("a", network)]).names == ["a", "a-2"]


def test_long_lists_are_read_in_pieces(shelf):
    """Others have their turn between the pieces, and short lists do not wait for long ones."""
    model = shelf.find("small+three")
    long = Asking([{"text": f"the {'cat ' * i}sees"} for i in range(400)])
    short = Asking([{"text": "a dog"}, {"text": "the the"}])
    steps = 0
    for _ in rescore_lists(model, deque([long, short])):
        steps += 1
        if steps == 1:
            assert (len(short.answers), len(long.answers)) == (1, 0)
    assert steps > 5
    (answer,) = long.answers
    scores = rescore(model.network, long.asked.lists, Weights(weight=0.3), model.ngram)
    expected = [hypothesis.total for hypothesis in long.asked.lists.hypotheses]
    (utterance,) = answer["utterances"]
    assert [h["total"] for h in utterance["hyps"]] == pytest.approx(expected, rel=1e-5)
    assert [utterance["best"]] == scores.best(np.array(expected)).tolist()


class Asking:
    """A question on its way, without a server; keeps its answers."""

    wanted = True

    def __init__(self, hyps):
        question = RescoreQuestion(utterances=[{"utt": "a", "hyps": hyps}])
        self.asked = Asked(question, lists=from_records([("a", question.utterances[0])]))
        self.answers = []

    def send(self, answer):
        self.answers.append(answer)


def test_scores_beyond_all_numbers_are_no_fault_of_the_server(client):
    hyps = [{"text": "the cat", "am": -1e308, "lm": 1e308}, {"text": "the dog", "am": -1}]
    weights = {"am_weight": 1e308, "old_lm_weight": 1e308}
    question = {"utterances": [{"utt": "a", "hyps": hyps}], "weights": weights}
    status, found = client.ask("/v1/rescore", question)
    assert status == 200
    assert found["utterances"][0]["hyps"][0]["total"] is None
    assert found["utterances"][0]["best"] == 1


def test_a_hypothesis_is_no_longer_than_a_text(shelf, serve):
    with serve(shelf, Limits(words=6)) as client:
        hyps = [{"utt": "a", "hyps": [{"text": "the " * 7}]}]
        status, answer = client.ask("/v1/rescore", {"utterances": hyps})
        assert (status, "7 words" in answer["error"]) == (413, True)


def raw(client, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=30)
    connection.sendall(data)
    return connection


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",  # no Host
        b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: -3\r\n\r\n",
        b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    ],
)
def test_what_is_no_http_gets_a_sentence_too(client, data):
    with raw(client, data) as connection:
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
        assert list(json.loads(answer.read())) == ["error"]


def test_too_many_visitors_get_a_sentence(client, monkeypatch):
    monkeypatch.setattr(listen, "_CONNECTIONS", 0)
    status, answer = client.ask("/healthz")
    assert (status, answer["error"]) == (503, "the server has too many visitors; try again")


def test_who_does_not_go_on_is_hung_up_on(client, monkeypatch):
    """Nobody holds a connection by headers without an end, the first ones or later ones."""
    monkeypatch.setattr(listen, "_PATIENCE", 1.0)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with raw(client, whole[:20]) as first, raw(client, whole) as second:
        answer = http.client.HTTPResponse(second)
        answer.begin()
        assert b"ok" in answer.read()
        second.sendall(whole[:20])
        assert first.recv(1000) == b""
        assert second.recv(1000) == b""


def test_who_does_not_read_is_hung_up_on(shelf, serve, monkeypatch):
    """A large answer is not kept for ever for somebody who does not take it."""
    monkeypatch.setattr(listen, "_PATIENCE", 0.3)
    body = json.dumps({"text": "the cat sees a house " * 390, "top": 50}).encode()
    head = f"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with serve(shelf, Limits(seconds=5)) as client, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", client.port))
        connection.settimeout(1)
        connection.sendall(head.encode() + body)
        assert client.ask("/v1/models")[0] == 200
        deadline = time.monotonic() + 30
        while client.server.server_state.connections:
            assert time.monotonic() < deadline
            time.sleep(0.1)
