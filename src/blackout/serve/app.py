"""The page and the API: which question goes to which work."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from blackout.errors import UserError
from blackout.files.plain_json import to_json
from blackout.rescore.formats.jsonl import from_records
from blackout.serve import answers
from blackout.serve.answers import Asked
from blackout.serve.gate import Gate, Limits
from blackout.serve.openapi import description
from blackout.serve.page import page
from blackout.serve.questions import (
    GenerateQuestion,
    NearQuestion,
    NextQuestion,
    Refusal,
    RescoreQuestion,
    ScoreQuestion,
    parse,
)
from blackout.serve.shelf import Shelf, Shown
from blackout.serve.worker import Job, Work, Worker
from blackout.text.vocab import UNK, UNK_WORD
from blackout.text.words import split_sentences

__all__ = ["application"]

_PIECE = 1 << 14  # bytes of an answer on their way at a time
_LISTS = 20  # times as many words in lists of hypotheses as in a text

Prepare = Callable[[Any, Shown, Limits], Asked]


def application(shelf: Shelf, limits: Limits | None = None, token: str | None = None) -> Gate:
    """The ASGI application over some models."""
    limits = limits or Limits()
    api = _Api(shelf, limits)
    routes = [
        Route("/", _page, methods=["GET"]),
        Route("/healthz", api.health, methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
        Route("/v1/models", api.models, methods=["GET"]),
        Route("/v1/models/{name}/curves", api.curves, methods=["GET"]),
        *(Route(path, api.asking(path), methods=["POST"]) for path in _QUESTIONS),
    ]
    handlers: dict[Any, Any] = {
        UserError: api.refuse,
        HTTPException: _no_such_page,
        MemoryError: _no_memory,
        Exception: _failed,
    }
    app = Starlette(routes=routes, lifespan=api.lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # a redirect has no sentence
    return Gate(app, limits, token)


# ---------------------------------------------------------------------- what a good question is


def _text(question: Any, model: Shown, limits: Limits) -> Asked:
    words = split_sentences(question.text)
    return Asked(question, _few(words, limits), model.weights(question.weight))


def _open_text(question: Any, model: Shown, limits: Limits) -> Asked:
    given = question.prompt if isinstance(question, GenerateQuestion) else question.text
    words = split_sentences(given, open_end=True)
    return Asked(question, _few(words, limits), model.weights(question.weight))


def _lists(question: Any, model: Shown, limits: Limits) -> Asked:
    if model.network is None:
        raise Refusal(400, f"{model.name} is an n-gram: rescoring needs a network")
    question.rescore_weights(0.5)
    lists = from_records((f"utterances[{i}]", item) for i, item in enumerate(question.utterances))
    if not lists.utterances:
        raise Refusal(400, "utterances: there is none")
    for hypothesis in lists.hypotheses:
        _few(hypothesis.words, limits)
    total = sum(len(hypothesis.words) + 1 for hypothesis in lists.hypotheses)
    if total > _LISTS * limits.words:
        raise Refusal(413, f"{total:,} words in all lists, at most {_LISTS * limits.words:,}")
    return Asked(question, weights=model.weights(question.weight), lists=lists)


def _word(question: Any, model: Shown, limits: Limits) -> Asked:
    if model.network is None or model.network.vocab is None:
        raise Refusal(400, f"{model.name} is an n-gram: it has no tables of vectors")
    if model.network.vocab.id(question.word) == UNK and question.word != UNK_WORD:
        raise Refusal(404, f"the model does not know the word {question.word[:80]!r}")
    return Asked(question)


def _few(words: Sequence[str], limits: Limits) -> list[str]:
    if len(words) > limits.words:
        raise Refusal(413, f"the text has {len(words):,} words, at most {limits.words:,} are read")
    return list(words)


_QUESTIONS: dict[str, tuple[type[Any], str, Work, Prepare]] = {
    "/v1/score": (
        ScoreQuestion,
        "Perplexity of the text; of each word its probability, its rank and the best in its place.",
        answers.score_texts,
        _text,
    ),
    "/v1/next": (NextQuestion, "Words with probabilities.", answers.next_words, _open_text),
    "/v1/generate": (
        GenerateQuestion,
        'JSON lines: {"word", "text", "probability"} for each word, then {"done": true}.',
        answers.generate_words,
        _open_text,
    ),
    "/v1/rescore": (
        RescoreQuestion,
        "The lists with their new scores, as blackout rescore writes them; best: a place.",
        answers.rescore_lists,
        _lists,
    ),
    "/v1/near": (NearQuestion, "Words with cosines, in both tables.", answers.near_words, _word),
}


class _Api:
    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self._shelf, self._limits = shelf, limits
        self._worker = Worker(limits.in_all)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        self._worker.start()
        yield
        self._worker.stop()

    async def health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def models(self, request: Request) -> Response:
        limits = {"words": self._limits.words, "bytes": self._limits.body}
        return _json({"models": self._shelf.about, "limits": limits})

    async def curves(self, request: Request) -> Response:
        return _json(self._shelf.curves(request.path_params["name"]))

    def asking(self, path: str) -> Callable[[Request], Any]:
        kind, _, work, prepare = _QUESTIONS[path]

        async def answer(request: Request) -> Response:
            try:
                question = parse(kind, await self._body(request))
            except ClientDisconnect:
                return Response(status_code=400)  # nobody reads it
            model = self._shelf.find(question.model)
            try:
                asked = prepare(question, model, self._limits)
            except Refusal:
                raise
            except UserError as error:
                raise Refusal(400, str(error)) from None
            job = Job(work, model, asked)
            self._worker.submit(job)
            if kind is GenerateQuestion:
                return StreamingResponse(self._lines(job), media_type="application/x-ndjson")
            return _json(await job.answer())

        return answer

    async def _body(self, request: Request) -> bytes:
        most = self._limits.body
        refusal = Refusal(413, f"the question has more than {most:,} bytes")
        stated = request.headers.get("content-length", "")
        if stated.isdigit() and int(stated) > most:
            raise refusal
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise refusal
        return bytes(body)

    async def _lines(self, job: Job) -> AsyncIterator[str]:
        """The words as they come; a failure on the way is the last line."""
        try:
            async for word in job.answers():
                yield to_json(word) + "\n"
        except UserError as error:
            yield to_json({"error": self._shelf.without_paths(str(error))}) + "\n"
        except Exception:
            yield to_json({"error": "the server failed; its log says why"}) + "\n"
        else:
            yield to_json({"done": True}) + "\n"
        finally:
            job.wanted = False

    async def refuse(self, request: Request, error: Exception) -> Response:
        """A refusal, or a fault of a model, whose place nobody needs to know."""
        if not isinstance(error, Refusal):
            return _json({"error": self._shelf.without_paths(str(error))}, 500)
        headers = {"connection": "close"}  # the rest of the question may be on its way
        if error.retry_after is not None:
            headers["retry-after"] = str(error.retry_after)
        return _json({"error": str(error)}, error.status, headers)


async def _page(request: Request) -> Response:
    text, policy = page()
    return HTMLResponse(text, headers={"content-security-policy": policy})


async def _openapi(request: Request) -> Response:
    return _json(description({path: entry[:2] for path, entry in _QUESTIONS.items()}))


async def _no_such_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is no such page", 405: f"{request.method} is not answered here"}
    sentence = sentences.get(error.status_code, str(error.detail))
    return _json({"error": sentence}, error.status_code, dict(error.headers or {}))


async def _no_memory(request: Request, error: Exception) -> Response:
    return _json({"error": "not enough memory; try again"}, 503, {"retry-after": "1"})


async def _failed(request: Request, error: Exception) -> Response:
    return _json({"error": "the server failed; its log says why"}, 500)


class _Pieces(Response):
    """A response that is sent as fast as it is read, so that its reader's time is limited too."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        for at in range(0, len(self.body), _PIECE):
            piece = self.body[at : at + _PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _json(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return _Pieces(to_json(values), status, headers, media_type="application/json")
