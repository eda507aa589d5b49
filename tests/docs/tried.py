"""Writes into docs/promises.md how many cases of each promise were tried, and when they passed.

    python -m pytest --junitxml=build/tests.xml      # or several files, of parts of the tests
    python tests/docs/tried.py build/tests.xml …

A promise's figure is the number of its tests' cases that passed; a line none of whose tests were
run keeps its own. What `make fuzz`, `make sweep` and `make soak` have tried on this machine (their
tallies in build/) becomes the tables at the end of the page; without a tally a table stays.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"
TABLES = "<!-- tests/docs/tried.py writes what follows -->"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FIGURE = re.compile(r" \((?:[\d,]+ cases?, \d{4}-\d\d-\d\d|not tried)\)$")


def main() -> None:
    passed, date = read_reports(sys.argv[1:])
    text, _, before = PAGE.read_text(encoding="utf-8").partition(TABLES)
    lines = [with_figure(line, passed, date) for line in text.rstrip().splitlines()]
    PAGE.write_text("\n".join([*lines, "", TABLES, "", *tables(before)]) + "\n", encoding="utf-8")


def read_reports(paths: Iterable[str]) -> tuple[Counter[tuple[str, str]], str]:
    """How many cases of each test passed, by file and name; the day of the latest report."""
    passed: Counter[tuple[str, str]] = Counter()
    dates = [""]
    for path in paths:
        root = ElementTree.parse(path).getroot()
        dates += [suite.get("timestamp", "")[:10] for suite in root.iter("testsuite")]
        for case in root.iter("testcase"):
            if not {child.tag for child in case} & {"failure", "error", "skipped"}:
                file = case.get("classname", "").replace(".", "/") + ".py"
                passed[file, case.get("name", "").partition("[")[0]] += 1
    return passed, max(dates)


def with_figure(line: str, passed: Counter[tuple[str, str]], date: str) -> str:
    """A promise's line with its figure."""
    if not line.startswith("- "):
        return line
    count = sum(passed[file, name] for file, name in TEST.findall(line))
    old = FIGURE.search(line)
    if not count:
        return line if old else f"{line} (not tried)"
    return f"{FIGURE.sub('', line)} ({count:,} case{'s' * (count != 1)}, {date})"


def tables(before: str) -> Iterator[str]:
    """What the harness has tried on this machine; ``before``: what the page says of that."""
    yield "## What was tried beyond the tests"
    yield ""
    yield "Of one machine, added up; `tests/docs/tried.py` writes it."
    for name, found in (("fuzz", _fuzzed()), ("sweep", _swept()), ("soak", _soaked())):
        yield from list(found) or _as_it_was(name, before)


def _as_it_was(name: str, before: str) -> Iterator[str]:
    """The table of `make NAME` as the page has it."""
    table = re.search(rf"^\*\*`make {name}`\*\*.*?(?=^\*\*`|\Z)", before, re.MULTILINE | re.DOTALL)
    if table:
        yield ""
        yield from table[0].rstrip().splitlines()


def _fuzzed() -> Iterator[str]:
    tried: Counter[str] = Counter()
    branches: Counter[str] = Counter()
    last: dict[str, str] = {}
    for line in _lines("fuzz/tally.tsv"):
        date, target, inputs, found, seen = line.split("\t")
        if found != "blind":
            tried[target] += int(inputs)
            branches[target] = max(branches[target], int(seen))
            last[target] = date
    if not tried:
        return
    yield ""
    yield f"**`make fuzz`**: {sum(tried.values()):,} inputs. What they found is mended and lies in"
    yield "`tests/hostile` or `tests/fuzz/crafted.py`. Branches are those that inputs took, of the"
    yield "package's Python, for `native-…` of the native code."
    yield from _table(
        ("parser", "inputs", "branches", "last"),
        [
            (f"`{name}`", f"{count:,}", f"{branches[name]:,}", last[name])
            for name, count in tried.most_common()
        ],
    )


def _swept() -> Iterator[str]:
    every: dict[str, dict[str, str]] = defaultdict(dict)
    faults: dict[str, None] = {}
    total, dates = 0, [""]
    for line in _lines("sweep/tally.jsonl"):
        one = json.loads(line)
        work, fault, cases = one["work"], one["fault"], one["cases"]
        total += cases
        faults[fault] = None
        dates.append(one["date"])
        if one.get("whole"):
            every[work][fault] = f"{cases:,}"
        else:
            every[work].setdefault(fault, "some")
    if not total:
        return
    yield ""
    yield f"**`make sweep`**: {total:,} runs up to {max(dates)}, each with one fault of the system,"
    yield "on one rank where there are several: of the disk an error (`fails`); full from there on;"
    yield "half a write, as systems may (`short`); half a write and kill -9 (`dies`); of memory the"
    yield "n-th large piece (`once`); that and all later ones (`gone`). A figure says how many such"
    yield "operations the work has: every one of them went wrong once."
    rows = [(work, *(found.get(fault, "") for fault in faults)) for work, found in every.items()]
    yield from _table(("work", *faults), rows)


def _soaked() -> Iterator[str]:
    rounds = [line.split("\t") for line in _lines("soak/tally.tsv")]
    if not rounds:
        return
    good = [one for one in rounds if one[3] == "0"]
    cases = sum(int(cases) for _, _, cases, _ in good)
    yield ""
    yield f"**`make soak`**: {len(rounds)} rounds up to {max(rounds)[0]}, {len(good)} of them"
    yield f"without a failure, {cases:,} cases a property. Seeds: " + ", ".join(
        f"{seed}{'' if status == '0' else ' (found something)'}" for _, seed, _, status in rounds
    )


def _lines(name: str) -> list[str]:
    path = ROOT / "build" / name
    return path.read_text().splitlines() if path.exists() else []


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|---{'|---:' * (len(head) - 1)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    print(datetime.datetime.now(datetime.UTC).date(), PAGE)
    main()
