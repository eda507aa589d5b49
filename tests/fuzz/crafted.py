"""Good files with one thing wrong, for formats whose files belong to one model or one text.

What stands by itself lies in ``tests/hostile`` as it is. These are made from today's good files, so
that they get as far into today's parser as they can.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.fuzz.targets import TARGETS
from tests.fuzz.workshop import Workshop

from blackout.text.shards import HEADER_BYTES

DEEP = "[" * 100_000
Crafted = Iterator[tuple[str, str, bytes]]
"""Target, what is wrong, and the file."""


def crafted(workshop: Workshop) -> Crafted:
    """All of them."""
    yield from _configs(_seed(workshop, "config"))
    yield from _weights(_seed(workshop, "weights"))
    yield from _checkpoints(_seed(workshop, "checkpoint"))
    for target in ("parts", "checkpoint-parts"):
        yield from _indexes(target, _seed(workshop, target))
    yield from _shards(_seed(workshop, "shard"))
    yield from _metrics(_seed(workshop, "metrics"))
    yield from _words(_seed(workshop, "words"))
    result = json.loads(_seed(workshop, "result"))
    yield "result", "outcome a number", json.dumps({**result, "outcome": 1}).encode()


def _seed(workshop: Workshop, target: str) -> bytes:
    return TARGETS[target].seeds(workshop)[0]


def _configs(good: bytes) -> Crafted:
    whole = json.loads(good)

    def config(settings: Any) -> bytes:
        return json.dumps({**whole, "config": settings}).encode()

    def changed(table: str, name: str, value: object) -> bytes:
        settings = whole["config"]
        return config({**settings, table: {**settings[table], name: value}})

    for name, value in (("hidden", 2**30), ("hidden", 20_000), ("layers", 100_000)):
        yield "config", f"{name} {value}", changed("model", name, value)
    for value in (2**63, -1, 1.5, "4", None, [4]):
        yield "config", f"hidden {value!r}", changed("model", "hidden", value)
    yield "config", "alpha infinite", changed("loss", "alpha", float("inf"))
    yield "config", "half a character", changed("loss", "loss", "\ud800")
    yield "config", "tables are numbers", config(dict.fromkeys(whole["config"], 1))
    yield "config", "config a list", config([])


def _with_header(header: Any, body: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + body


def _weights(good: bytes) -> Crafted:
    size = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
    name = next(name for name in header if name != "__metadata__")

    def changed(**values: Any) -> bytes:
        return _with_header({**header, name: {**header[name], **values}}, body)

    yield "weights", "offsets backwards", changed(data_offsets=[10**6, 0])
    yield "weights", "shape of 2**62 rows", changed(shape=[2**62, 4])
    yield "weights", "another type", changed(dtype="I8")
    yield "weights", "metadata a list", _with_header({**header, "__metadata__": ["sha256"]}, body)
    yield "weights", "a header of 2**40", (2**40).to_bytes(8, "little") + good[8:]
    yield "weights", "infinity", good[:-4] + struct.pack("<f", float("inf"))
    yield "weights", "cut off", good[:-100]


def _words(good: bytes) -> Crafted:
    size = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
    about = header["test"]

    def changed(**values: Any) -> bytes:
        return _with_header({**header, "test": {**about, **values}}, body)

    yield "words", "a table", changed(shape=[*about["shape"], 1])
    yield "words", "whole numbers", changed(dtype="I32")
    yield "words", "a type that PyTorch has not", changed(dtype="U32")
    yield "words", "no parts", _with_header({"__metadata__": header["__metadata__"]}, b"")
    for value in (float("nan"), float("inf"), 0.5):
        yield "words", f"a log-probability of {value}", good[:-4] + struct.pack("<f", value)


def _checkpoints(good: bytes) -> Crafted:
    size = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
    fields = header["__metadata__"]
    position = json.loads(fields["position"])

    def with_fields(**values: str) -> bytes:
        return _with_header({**header, "__metadata__": {**fields, **values}}, body)

    for name, value in (
        ("step", "many"),
        ("step", -1),
        ("schedule", 3),
        ("schedule", {}),
        ("schedule", {**position["schedule"], "best": "low"}),
        ("streams", {}),
        ("streams", 7),
        ("metrics_bytes", -5),
        ("metrics_bytes", 10**18),
        ("epoch", 10**30),
        ("seconds", None),
        ("words", 1.5),
        ("diverged", 3),
    ):
        changed = {**position, "epoch": 0, name: value}
        yield "checkpoint", f"{name} {value!r}"[:40], with_fields(position=json.dumps(changed))
    begin, end = header["random.cpu"]["data_offsets"]
    spoiled = body[:begin] + b"\xff" * (end - begin) + body[end:]
    yield "checkpoint", "no state of a generator", _with_header(header, spoiled)
    for name in ("position", "config", "texts"):
        for text in (DEEP, "[]", "7", "{}", '{"model": 3}', ""):
            yield "checkpoint", f"{name} {text[:12]}", with_fields(**{name: text})


def _indexes(target: str, good: bytes) -> Crafted:
    size = int.from_bytes(good[:8], "little")
    header, body = json.loads(good[8 : 8 + size]), good[8 + size :]
    fields = header["__metadata__"]
    parts = json.loads(fields["parts"])
    first, *others = parts["files"]

    def said(**values: Any) -> bytes:
        told = json.dumps({**parts, **values})
        return _with_header({**header, "__metadata__": {**fields, "parts": told}}, body)

    for strata in (10**12, 0, -1, 2.0, 1e300, None, "2"):
        yield target, f"{strata!r} strata", said(strata=strata)
    for held in (0, [[0]], ["0"], [True], [0, 0], [10**9], {}, None):
        yield (
            target,
            f"a part with strata {held!r}",
            said(files=[{**first, "strata": held}, *others]),
        )
    for name in (
        5,
        None,
        [],
        "",
        "/etc/passwd",
        "../part-of-x.safetensors",
        "part-of-\0.safetensors",
    ):
        yield target, f"a part called {name!r}", said(files=[{**first, "name": name}, *others])
    for tables in (3, [], {}, {"embedding.weight": 1}, {"x": ["F32", 2**40, 4]}):
        yield target, f"tables {tables!r}", said(tables=tables)
    yield target, "no files", said(files=[])
    yield target, "files a number", said(files=3)


def _shards(good: bytes) -> Crafted:
    length = int.from_bytes(good[12:16], "little")
    about, payload = json.loads(good[16 : 16 + length]), good[HEADER_BYTES:]

    def described(text: bytes) -> bytes:
        start = good[:12] + len(text).to_bytes(4, "little") + text
        return start.ljust(HEADER_BYTES, b"\0") + payload

    for name, value in (
        ("tokens", -1),
        ("tokens", 2**64),
        ("tokens", 1.5),
        ("tokens", None),
        ("sentences", -1),
        ("source", []),
        ("options", {"vocab_size": "x"}),
        ("unknown", "x"),
    ):
        yield "shard", f"{name} {value!r}", described(json.dumps({**about, name: value}).encode())
    yield "shard", "a description without end", described(b"[" * 4000)
    words = np.frombuffer(payload, np.uint32, about["tokens"]).copy()
    words[0] = 2**32 - 1
    outside = words.tobytes() + payload[words.nbytes :]
    yield "shard", "a word outside the vocabulary", good[:HEADER_BYTES] + outside
    for name, begin, value in (("last", -8, 2**63), ("last but one", -16, 2**40)):
        ends = bytearray(good)
        ends[len(good) + begin : len(good) + begin + 8] = value.to_bytes(8, "little")
        yield "shard", f"{name} sentence ends at {value}", bytes(ends)


def _metrics(good: bytes) -> Crafted:
    event = json.loads(good.splitlines()[0])
    for name, value in (
        ("words", "x"),
        ("words", 10**400),
        ("seconds", None),
        ("epoch", 1e300),
        ("valid_perplexity", [1]),
        ("valid_perplexity", None),
        ("event", 3),
        ("diverged", {"a": 1}),
    ):
        line = json.dumps({**event, name: value}).encode() + b"\n"
        yield "metrics", f"{name} {type(value).__name__}", line
