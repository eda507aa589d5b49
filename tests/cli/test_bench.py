"""``blackout bench``: what its figures mean."""

import json

import pytest

from blackout.cli.main import main

SMALL = ["--vocab-size", "300", "--hidden", "8", "--seconds", "0.05", "--threads", "1", "--json"]


def figures(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--precision", "bf16", "--storage", "bf16", "--second-moment", "row"],
        ["--impl", "reference", "--loss", "nce", "--cell", "lstm"],
        ["--loss", "full", "--profile"],
    ],
)
def test_bench_train(options, capsys):
    arguments = ["bench", "train", *SMALL, "--samples", "7", "--batch", "4", "--bptt", "3"]
    assert main([*arguments, *options]) == 0
    result = figures(capsys)
    matrices = 8 if "lstm" in options else 1
    columns = 300 if "full" in options else 7
    assert result["flops_per_word"] == 6 * (matrices * 8**2 + columns * 8)
    assert result["fraction_of_gemm"] > 0
    assert result["words_per_second"] > 0
    assert result["gemm_flops"] > 0
    assert 10**7 < result["peak_rss_bytes"] < 10**11


def test_bench_eval(capsys):
    assert main(["bench", "eval", *SMALL, "--words", "64"]) == 0
    result = figures(capsys)
    assert result["flops_per_word"] == 2 * 8 * (300 + 8)
    assert result["fraction_of_gemm"] > 0


def test_a_bad_number_is_one_line(capsys):
    assert main(["bench", "train", *SMALL, "--samples", "0"]) == 1
    assert "samples is 0" in capsys.readouterr().err
