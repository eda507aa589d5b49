"""A server under load: many clients, some of which misbehave; no wrong answer, no leak, latencies.

    python benchmarks/serve_load.py MODEL [--ngram X.arpa] [--requests 10000] [--clients 50]

A server is started on a loopback port. Clients ask ordinary questions, whose right answers were
asked for beforehand, one at a time; among them are some who hang up in the middle of a question or
of an answer, who read slowly, and whose questions are malformed. At the end the server must have
given only right answers and fitting refusals, hold about as much memory as after a tenth of the
requests, and stop at Ctrl-C.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

TEXTS = 40
BAD = [b"{", b"[]", b"\xff\xfe", b'{"text": 3}', b'{"text": "a", "top": 99}', b'{"model": "?"}']


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--ngram", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    command = [sys.executable, "-m", "blackout", "serve", str(options.model), "--port", "0"]
    command += ["--json", "--threads", str(options.threads)]
    command += ["--ngram", str(options.ngram)] if options.ngram else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        about = json.loads(server.stdout.readline())
        port = int(about["address"].rsplit(":", 1)[1].strip("/"))
        run(Load(port, about["models"], options.requests), options.clients, server.pid)
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0, "the server did not stop well"
    finally:
        server.kill()


class Load:
    """The questions with their right answers, and what came of them."""

    def __init__(self, port: int, models: list[str], requests: int) -> None:
        self.port, self.left = port, requests
        self.lock = threading.Lock()
        self.seconds: dict[str, list[float]] = {}
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        words = [entry["word"] for entry in self.ask("/v1/next", {"top": 50})[1]["words"]]
        words = [word for word in words if not word.startswith("<")]
        dice = random.Random(1)
        self.questions: list[tuple[str, dict[str, Any], Any]] = []
        for i in range(TEXTS):
            text = " ".join(dice.choices(words, k=dice.randint(1, 25)))
            for path, question in (
                ("/v1/score", {"text": text}),
                ("/v1/next", {"text": text}),
                ("/v1/generate", {"prompt": text, "words": dice.randint(1, 20), "seed": i}),
                ("/v1/rescore", {"utterances": [{"utt": "a", "hyps": [{"text": text}]}]}),
            ):
                name = models[i % len(models)]
                question["model"] = models[0] if path == "/v1/rescore" else name
                self.questions.append((path, question, self.ask(path, question)[1]))

    def ask(self, path: str, question: Any, body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, body or json.dumps(question).encode())
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        lines = [json.loads(line) for line in text.splitlines()]
        return answer.status, lines if path == "/v1/generate" and answer.status == 200 else lines[0]

    def client(self, number: int) -> None:
        """Asks until all questions are asked."""
        dice = random.Random(number)
        while True:
            with self.lock:
                if self.left == 0:
                    return
                self.left -= 1
            path, question, expected = dice.choice(self.questions)
            kind = dice.choices(["good", "bad", "kill", "slow"], [80, 8, 8, 4])[0]
            try:
                getattr(self, kind)(path, question, expected, dice)
            except Exception as error:
                self.note(f"{kind}: {type(error).__name__}", f"{path}: {kind}: {error}")

    def note(self, what: str, wrong: str = "") -> None:
        with self.lock:
            self.counts[what] += 1
            if wrong:
                self.wrong.append(wrong)

    def good(self, path: str, question: Any, expected: Any, dice: random.Random) -> None:
        started = time.perf_counter()
        status, answer = self.ask(path, question)
        with self.lock:
            self.seconds.setdefault(path, []).append(time.perf_counter() - started)
        if status in (429, 503):
            self.note(f"refused with {status}")
        else:
            right = status == 200 and same(answer, expected)
            self.note("answered", "" if right else f"{path}: {status}: {str(answer)[:200]}")

    def bad(self, path: str, question: Any, expected: Any, dice: random.Random) -> None:
        status, answer = self.ask(path, None, dice.choice(BAD))
        fits = status in (400, 404, 429, 503) and list(answer) == ["error"]
        self.note("malformed", "" if fits else f"{path}: {status}: {answer}")

    def kill(self, path: str, question: Any, expected: Any, dice: random.Random) -> None:
        """Hangs up after a part of the question, or of the answer."""
        data = self.raw(path, question)
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            if dice.random() < 0.5:
                connection.sendall(data[: dice.randrange(len(data))])
            else:
                connection.sendall(data)
                connection.recv(dice.choice([1, 100, 1000]))
        self.note("hung up")

    def slow(self, path: str, question: Any, expected: Any, dice: random.Random) -> None:
        """Reads a few bytes at a time from a small buffer; what arrives must be whole."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", self.port))
            connection.sendall(self.raw(path, question))
            received = b""
            while piece := connection.recv(512):
                received += piece
                time.sleep(0.002)
        fits = received.startswith(b"HTTP/1.1 200") or received[9:12] in (b"429", b"503")
        self.note("read slowly", "" if fits else f"{path}: slow: {received[:200]!r}")

    @staticmethod
    def raw(path: str, question: Any) -> bytes:
        body = json.dumps(question).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def same(a: Any, b: Any) -> bool:
    """Whether two answers agree, numbers to a thousandth: sums are added up in other orders."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-3 * max(abs(a), abs(b), 1e-6)
    return bool(a == b)


def run(load: Load, clients: int, pid: int) -> None:
    total = load.left
    started = time.perf_counter()
    threads = [threading.Thread(target=load.client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    early = 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        if not early and load.left < 0.9 * total:
            early = resident(pid)
    seconds = time.perf_counter() - started
    late = resident(pid)
    rate = f"{total / seconds:.0f} a second"
    print(f"{total:,} requests of {clients} clients in {seconds:.0f} s, {rate}")
    for what, count in load.counts.most_common():
        print(f"  {what:<20} {count:,}")
    print(f"{'latency, ms':<16}{'median':>8}{'95 %':>8}{'99 %':>8}{'most':>8}")
    for path, values in sorted(load.seconds.items()):
        cut = statistics.quantiles(values, n=100)
        row = [1000 * x for x in (statistics.median(values), cut[94], cut[98], max(values))]
        print(f"{path:<16}" + "".join(f"{x:>8.0f}" for x in row))
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    print(f"memory {early / 2**20:.0f} MiB after a tenth, {late / 2**20:.0f} MiB at the end; "
          f"{open_files} open files")  # fmt: skip
    print(f"wrong answers: {len(load.wrong)}")
    for wrong in load.wrong[:10]:
        print(f"  {wrong}")
    assert not load.wrong, "wrong answers"
    assert late < early + 64 * 2**20, "memory has grown"
    assert open_files < 60, "files are left open"


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
