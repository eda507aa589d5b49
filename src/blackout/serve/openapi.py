"""The API in words that programs read: OpenAPI 3.1, from the questions' own dataclasses."""

from __future__ import annotations

from typing import Any

import blackout
from blackout.serve.questions import schema

__all__ = ["description"]

_REFUSALS = {
    "400": "The question is not one; the sentence says what is wrong with it.",
    "401": "The token is missing or wrong.",
    "403": "The Host header has a name, or the Origin header a page, that is not this server's.",
    "404": "There is no such model, word or page.",
    "413": "The question is too large.",
    "429": "Too many questions of one address are open.",
    "503": "The server is busy or stopping, or the answer took too long.",
}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
}


def description(questions: dict[str, tuple[type[Any], str]]) -> dict[str, Any]:
    """The description of an API; ``questions``: path → what is asked, and what is answered."""
    refusals = {
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _REFUSALS.items()
    }
    paths: dict[str, Any] = {
        "/healthz": {"get": _get("Whether the server answers.", refusals, "403")},
        "/v1/models": {
            "get": _get("The models: names, kinds, sizes.", refusals, "401", "403", "429", "503")
        },
        "/v1/models/{name}/curves": {
            "get": _get(
                "The epochs of the run a network comes from.",
                *(refusals, "401", "403", "404", "429", "503"),
            )
            | {
                "parameters": [
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
                ]
            }
        },
    }
    for path, (kind, answer) in questions.items():
        streamed = path == "/v1/generate"
        media = "application/x-ndjson" if streamed else "application/json"
        content = {"application/json": {"schema": schema(kind)}}
        paths[path] = {
            "post": {
                "summary": kind.__doc__,
                "requestBody": {"required": True, "content": content},
                "responses": {
                    "200": {
                        "description": answer,
                        "content": {media: {"schema": {"type": "object"}}},
                    },
                    **refusals,
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "BlackOut", "version": blackout.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _get(summary: str, refusals: dict[str, Any], *statuses: str) -> dict[str, Any]:
    answer = {
        "description": summary,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
    own = {status: refusals[status] for status in statuses}
    return {"summary": summary, "responses": {"200": answer, **own}}
