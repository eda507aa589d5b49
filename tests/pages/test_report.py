"""report.html: complete in itself, says what the run came to, safe against hostile words."""

import json
import re
import signal
from html.parser import HTMLParser

import pytest

from blackout.config import Config
from blackout.errors import UserError
from blackout.pages.page import page, prose, write
from blackout.pages.plots import Plot, Series, draw
from blackout.pages.report import read_run, write_comparison, write_report
from blackout.text.prepared import prepare
from blackout.train import loop, train
from blackout.train.progress import Progress

HOSTILE = "<script>alert(1)</script>"
LINES = [f"a {HOSTILE} b & c", "the \"cat\" sat on 'it'", "$x_1$ \\frac costs <unk> more"]


class Tags(HTMLParser):
    """All tags with their attributes, and the text outside <style>."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._style = [], "", False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"

    def handle_endtag(self, tag):
        self._style = False

    def handle_data(self, data):
        self.text += "" if self._style else data


def settings(epochs):
    return Config.from_dict(
        {
            "model": {"hidden": 8},
            "loss": {"samples": 3},
            "run": {"batch": 4, "bptt": 5, "epochs": epochs, "threads": 1},
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "train").write_text("\n".join(LINES * 20) + "\n")
    for name in ("valid", "test"):
        (folder / name).write_text("\n".join(LINES) + "\nnever seen\n")
    return prepare(
        folder / "train", folder / "data", valid=folder / "valid", test=folder / "test", threads=1
    )


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for epochs in (1, 3):
        train(settings(epochs), data, out / f"{epochs}-epochs", report=write_report)
    return out


class StopSoon(Progress):
    """Sends the signal of Ctrl-C after the first block."""

    def block_done(self, position):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_run_leaves_its_report(runs, epochs):
    folder = runs / f"{epochs}-epochs"
    html = (folder / "report.html").read_text(encoding="utf-8")
    parsed = Tags(html)
    last = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    test = last[-1]
    for figure in ("perplexity", "perplexity_without_unk"):
        assert f"{test[figure]:,.2f}" in parsed.text
    best = min(event["valid_perplexity"] for event in last[:-1])
    assert f"{best:,.2f}" in parsed.text
    assert f"{last[-2]['words']:,}" in parsed.text
    assert "finished" in parsed.text
    assert [tag for tag, _ in parsed.tags].count("svg") == 4


def test_nothing_is_fetched_and_no_code_runs(runs):
    html = (runs / "3-epochs" / "report.html").read_text(encoding="utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    for tag, attributes in Tags(html).tags:
        assert tag not in ("script", "link", "img", "iframe", "object")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)


def test_every_name_in_the_page_is_unique_and_found(runs):
    tags = Tags((runs / "3-epochs" / "report.html").read_text(encoding="utf-8")).tags
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    used = {attributes["href"][1:] for _, attributes in tags if "href" in attributes}
    assert used <= set(names)


def test_hostile_words_are_text(runs):
    # a sample of a model of 20 words holds the hostile one
    html = (runs / "3-epochs" / "report.html").read_text(encoding="utf-8")
    assert HOSTILE in Tags(html).text
    assert "<script" not in html


def test_hostile_names_are_text(tmp_path):
    title = '"><img src=x onerror=alert(1)>'
    path = write(tmp_path / "page.html", page(title, title, [prose(title)]))
    assert "<img" not in path.read_text()
    svg = draw(Plot(title, title, title, [Series(title, [1], [2]), Series("$\\x$", [1], [3])]), "p")
    assert "<img" not in svg
    assert title in Tags(svg).text


@pytest.mark.filterwarnings("error")
def test_words_of_any_script_are_drawn():
    svg = draw(Plot("言語", "時", "困惑度", [Series("模型", [1], [2]), Series("b", [1], [3])]), "p")
    assert "模型" in Tags(svg).text


def test_settings_that_differ_are_highlighted(runs):
    html = (runs / "3-epochs" / "report.html").read_text(encoding="utf-8")
    changed = dict(re.findall(r"<div class=changed><dt>(.*?)</dt><dd>(.*?)</dd>", html))
    expected = {"hidden": "8", "samples": "3", "batch": "4", "bptt": "5", "epochs": "3"}
    assert changed == {**expected, "threads": "1"}


def test_an_interrupted_run_has_a_report_too(data, tmp_path):
    with pytest.raises(loop.Stopped):
        train(settings(2), data, tmp_path, progress=StopSoon(), report=write_report)
    parsed = Tags((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "stopped after 0 of 2 epochs" in parsed.text
    assert "No epoch is finished yet" in parsed.text
    assert "last checkpoint" in parsed.text
    assert not [tag for tag, _ in parsed.tags if tag == "svg"]


def test_parameters_are_counted_from_the_file(runs, data):
    run = read_run(runs / "1-epochs")
    words, gates = len(data.vocab), 3  # of a GRU: two matrices for each
    assert (run.vocab_size, run.parameters) == (words, 2 * 8 * words + 2 * gates * 8 * 8)


def test_speed_is_that_of_the_epoch_alone(runs):
    run = read_run(runs / "3-epochs")
    events = run.epochs
    took = events[2]["seconds"] - events[1]["seconds"]
    if took > 0:
        expected = (events[2]["words"] - events[1]["words"]) / took
        assert run.speed_curve("speed").y[2] == pytest.approx(expected)


def test_a_report_that_cannot_be_written_does_not_fail_the_run(data, tmp_path, capsys):
    (tmp_path / "report.html" / "in the way").mkdir(parents=True)
    result = train(settings(1), data, tmp_path, report=write_report)
    assert result.test is not None
    warning = capsys.readouterr().err
    assert warning.startswith("warning: no report.html: ")
    assert warning.count("\n") == 1


def test_a_failed_write_leaves_the_old_report(runs, tmp_path):
    path = write(tmp_path / "report.html", "old")
    with pytest.raises(AttributeError):
        write(path, None)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        write_report(tmp_path)


def test_infinite_figures_are_shown_not_drawn(runs, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.toml").write_bytes((runs / "1-epochs" / "run.toml").read_bytes())
    event = json.loads((runs / "1-epochs" / "metrics.jsonl").read_text().splitlines()[0])
    event["valid_perplexity"] = float("inf")
    (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")
    parsed = Tags(write_report(folder).read_text(encoding="utf-8"))
    assert "∞" in parsed.text
    assert "no model to generate it from" in parsed.text


def test_comparison_shows_every_run_in_one_plot(runs, tmp_path):
    both = {f"<{name}>": runs / f"{name}-epochs" for name in (1, 3)}
    more = Plot("Mix", "λ", "perplexity", [Series("mix", [0, 0.5, 1], [9, 7, 8])], whole=False)
    html = write_comparison(tmp_path / "all.html", both, plots=[more]).read_text(encoding="utf-8")
    parsed = Tags(html)
    assert [tag for tag, _ in parsed.tags].count("svg") == 3
    for name in both:  # the table, two legends, the sample's heading
        assert parsed.text.count(name) == 4
    names = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(names) == len(set(names))


def test_comparison_takes_a_table_of_its_own(runs, tmp_path):
    rows = [
        {"model": "5-gram", "perplexity": 12.345, "words": None},
        {"model": "mix", "perplexity": 11.0, "words": 12000},
    ]
    path = write_comparison(tmp_path / "all.html", {"net": runs / "1-epochs"}, rows, title="Demo")
    html = path.read_text(encoding="utf-8")
    cells = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", html)
    expected = ["model", "perplexity", "words", "5-gram", "12.35", "–", "mix", "11.00", "12,000"]
    assert cells == expected
    assert "<title>Demo</title>" in html
