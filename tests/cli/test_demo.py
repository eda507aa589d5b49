"""``blackout demo``: four models of one text, compared over one vocabulary."""

import json

from blackout.cli.main import main


def test_the_demo_compares_four_models(tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--epochs", "1", "--threads", "1", "--json"]) == 0
    printed = capsys.readouterr()
    values = json.loads(printed.out)
    assert {"perplexity", "words_per_second", "report"} <= values.keys()
    rows = {row["model"]: row for row in values["rows"]}
    mixed, counted = "BlackOut + Kneser-Ney", "Kneser-Ney 5-gram"
    assert list(rows) == [mixed, counted, "BlackOut", "exact softmax"]
    assert values["perplexity"] == rows["BlackOut"]["test perplexity"]
    for alone in ("BlackOut", counted):
        # on the text the weight was tuned on this must be so
        assert rows[mixed]["validation perplexity"] <= rows[alone]["validation perplexity"]
    assert rows[counted]["test perplexity"] < rows["BlackOut"]["test perplexity"]
    assert "counting them (Kneser-Ney) beats a network" in printed.err
    page = (out / "report.html").read_text()
    assert mixed in page
    assert "λ = " in page
    # a second demo takes the place of the first, but not of anything else
    (out / "notes").write_text("mine")
    assert main(["demo", "--out", str(out), "--epochs", "1"]) == 1
    assert "notes" in capsys.readouterr().err
    assert (out / "report.html").exists()
