"""--help: settings stand under the names of their tables in run.toml."""

import re

import pytest

from blackout.cli.main import main
from blackout.config import Config


def headings(capsys, verb):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    return re.findall(r"^\W*(\w+) options\W*$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("verb", ["train", "tune"])
def test_settings_are_grouped_by_table(capsys, verb):
    assert headings(capsys, verb) == [*Config().to_dict(), "output"]


def test_other_options_are_grouped_by_subject(capsys):
    assert headings(capsys, "mix") == ["computing", "reading", "output"]
