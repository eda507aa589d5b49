"""A server whose memory runs short: 503 for those who ask just then, right answers for others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.conftest import Lab
from tests.faults.system import Shim
from tests.faults.works import Work
from tests.fuzz.asking import Asking

from blackout.errors import UserError
from blackout.memory import shortage

Answers = list[tuple[int, list[Any]]]
_WORDS = 300


class Answering(Work):
    """It begins, and answers a question of each kind; then once more, with memory enough."""

    def __init__(self, name: str, lab: Lab, folder: Path, network: Path, ngram: Path) -> None:
        super().__init__(name, lab, folder)
        self._models = network, ngram
        text = " ".join(lab.text("test").read_text().split()[:_WORDS])
        both = "net+ngram"
        lists = [{"text": text}, {"text": "w1"}]
        self._questions = {
            "/v1/score": {"text": text, "top": 3, "model": both},
            "/v1/next": {"text": text, "model": both},
            "/v1/generate": {"prompt": "w1", "words": 3, "seed": 1},
            "/v1/rescore": {"utterances": [{"utt": "a", "hyps": lists}], "model": both},
            "/v1/near": {"word": "w1", "top": 3},
        }

    def set_up(self) -> None:
        self.old_folder.mkdir()
        asking = self._begun()
        self.new = self._ask(asking)
        asking.close()
        assert [status for status, _ in self.new] == [200] * len(self._questions), self.new

    def _begun(self) -> Asking:
        return Asking(*self._models, words=2 * _WORDS)

    def _ask(self, asking: Asking) -> Answers:
        return [
            asking.ask(path, json.dumps(body).encode()) for path, body in self._questions.items()
        ]

    def do(self, rank: int = 0) -> int:
        try:
            asking = self._begun()
        except (MemoryError, RuntimeError, UserError) as error:  # said as the command line says it
            os.write(2, f"blackout serve: {shortage(error) or error}\n".encode())
            return 1
        found = self._ask(asking)
        Shim().disarm()
        assert self._ask(asking) == self.new, "it does not go on as before"
        asking.close()
        short = False
        for (status, answer), right in zip(found, self.new, strict=True):
            if (status, answer) != right:
                last = answer[-1]  # of words on their way, which the failure ends
                assert status == 503 or (status == 200 and len(answer) <= len(right[1])), found
                assert "not enough memory" in last["error"], last
                short = True
        if short:
            os.write(2, b"blackout serve: not enough memory for a question\n")
        return int(short)

    def fault(self) -> str | None:
        return None

    def is_new(self) -> bool:
        return True
