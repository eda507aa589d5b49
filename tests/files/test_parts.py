"""Tensors in parts: whatever number of ranks wrote them, any number reads them."""

import json

import pytest
import torch

from blackout.errors import UserError
from blackout.files.loading import load_tensors
from blackout.files.part_names import named_parts, remove_parts
from blackout.files.parts import part_bytes, save_index, save_part
from blackout.files.rows import Rows
from blackout.files.tensors import read_metadata, save_tensors

V, STRATA = 37, 8
WHOLE = {
    "table": torch.randn(V, 3, generator=torch.Generator().manual_seed(1)),
    "short": torch.randn(V, 3, generator=torch.Generator().manual_seed(2)).bfloat16(),
    "clock": torch.arange(V, dtype=torch.int32),
}
SHARED = {"body": torch.randn(4, 4), "step": torch.tensor(7)}


def rows_of(rank: int, ranks: int) -> Rows:
    numbers = torch.arange(V)
    return Rows(V, STRATA, numbers[numbers % STRATA % ranks == rank])


def saved(path, ranks: int, token: str = "t0"):
    """As ``ranks`` ranks write it, and as one process does where that is 1."""
    if ranks == 1:
        save_tensors(path, WHOLE | SHARED, {"hello": "you"})
        return path
    parts = []
    for rank in range(ranks):
        rows = dict.fromkeys(WHOLE, rows_of(rank, ranks))
        own = {name: tensor[rows[name].owned] for name, tensor in WHOLE.items()}
        assert part_bytes(own, rows) == sum(t.numel() * t.element_size() for t in own.values())
        parts.append(save_part(path, rank + 1, ranks, token, own, rows))
    save_index(path, SHARED, {"hello": "you"}, parts, own, rows)
    return path


def loaded(path, rank: int, ranks: int):
    assert read_metadata(path)["hello"] == "you"
    rows = {} if ranks == 1 else dict.fromkeys(WHOLE, rows_of(rank, ranks))
    like = {n: t if ranks == 1 else t[rows[n].owned] for n, t in WHOLE.items()} | SHARED
    into = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    load_tensors(path, into, rows=rows)
    return like, into


@pytest.mark.parametrize("wrote", [1, 2, 3, 8])
@pytest.mark.parametrize("reads", [1, 2, 5])
def test_any_number_reads_what_any_number_wrote(tmp_path, wrote, reads):
    path = saved(tmp_path / "x.safetensors", wrote)
    for rank in range(reads):
        like, into = loaded(path, rank, reads)
        assert all(torch.equal(into[name], tensor) for name, tensor in like.items())


def test_a_missing_foreign_or_damaged_part_is_refused_by_name(tmp_path):
    path = saved(tmp_path / "x.safetensors", 3)
    part = named_parts(path)[1]
    before = part.read_bytes()
    other = saved(tmp_path / "y.safetensors", 3)

    part.write_bytes(named_parts(other)[1].read_bytes())  # whole, but of another saving
    with pytest.raises(UserError, match=rf"{part}: is another part than x\.safetensors names"):
        loaded(path, 0, 1)
    loaded(path, 0, 3)  # who needs other parts reads on

    for place in range(0, len(before), 101):
        changed = bytearray(before)
        changed[place] ^= 1
        part.write_bytes(changed)
        with pytest.raises(UserError, match=rf"{part}: "):
            loaded(path, 0, 2)
    part.write_bytes(before[:-1])
    with pytest.raises(UserError, match=rf"{part}: damaged"):
        loaded(path, 0, 1)
    part.unlink()
    with pytest.raises(UserError, match=rf"{part}: is missing; x\.safetensors is whole only"):
        loaded(path, 0, 1)


def test_nothing_is_filled_before_all_parts_are_known_to_be_whole(tmp_path):
    path = saved(tmp_path / "x.safetensors", 3)
    named_parts(path)[2].unlink()
    into = {name: torch.zeros_like(tensor) for name, tensor in (WHOLE | SHARED).items()}
    with pytest.raises(UserError):
        load_tensors(path, into)
    assert not any(tensor.any() for tensor in into.values())


def test_a_list_of_parts_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    path = saved(tmp_path / "in" / "x.safetensors", 2)
    for name in ("../secret.safetensors", "part-of-/etc/passwd.safetensors", "x.safetensors"):
        field = {
            "strata": 2,
            "tables": {n: ["F32", *t.shape] for n, t in WHOLE.items()},
            "files": [{"name": name, "sha256": "0" * 64, "strata": [0, 1]}],
        }
        save_tensors(path, SHARED, {"hello": "you", "parts": json.dumps(field)})
        assert named_parts(path) == []
        with pytest.raises(UserError, match=r"x\.safetensors: "):
            loaded(path, 0, 1)
    for field in ("{", "[]", '{"files": 3}', '{"strata": 2, "tables": {}, "files": []}'):
        save_tensors(path, SHARED, {"hello": "you", "parts": field})
        assert named_parts(path) == []
        with pytest.raises(UserError, match=r"x\.safetensors: "):
            loaded(path, 0, 1)


def test_parts_that_no_file_names_are_cleared_away(tmp_path):
    path = saved(tmp_path / "x.safetensors", 3, "old")
    old = named_parts(path)
    saved(path, 2, "new")
    (tmp_path / ".part-of-x-1-of-2-abc.safetensors.77.partial").write_bytes(b"half")
    remove_parts(tmp_path, "x", keep=named_parts(path))
    assert not any(part.exists() for part in old)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"x.safetensors", *(part.name for part in named_parts(path))}
