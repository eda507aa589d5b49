"""A sparse head under DistributedDataParallel."""

import re


def test_two_ranks_learn_and_stay_equal(run_on_ranks):
    printed = run_on_ranks("distributed.py", "--classes", "1000", "--steps", "60")
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+)%", printed)]
    assert accuracies[-1] > max(30.0, accuracies[0])
    assert "2 ranks end with the same weights" in printed


def test_two_ranks_divide_a_head(run_on_ranks):
    printed = run_on_ranks("divided_head.py", "--classes", "1001", "--steps", "60")
    accuracies = [float(found) for found in re.findall(r"accuracy ([\d.]+)%", printed)]
    assert accuracies[-1] > max(30.0, accuracies[0])
    assert "rank 0 of 2 holds 501 of 1,001 classes" in printed
    assert "rank 1 of 2 holds 500 of 1,001 classes" in printed
