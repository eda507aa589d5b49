"""The native matrix products: against float64, in every layout and format, on odd shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from blackout import _native
from blackout.ops.cpu.products import matrix_product

SIZES = [1, 3, 17, 252, 507]
FORMATS = [torch.float32, torch.bfloat16]


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def is_half(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bfloat16


def packed(
    right: Tensor,
    dtype: torch.dtype,
    *,
    transposed: bool = False,
    rows: Tensor | None = None,
    threads: int = 1,
) -> Tensor:
    """Panels of `right`, or of its transpose; of the rows of a table that `rows` names."""
    n = len(right) if rows is None else len(rows)
    depth, columns = (right.shape[1], n) if transposed else (n, right.shape[1])
    # What lies there before must not matter.
    panels = torch.full((_native.panel_numbers(depth, columns),), torch.nan, dtype=dtype)
    _native.pack(
        right.data_ptr(), is_half(right), right.stride(0), 0 if rows is None else rows.data_ptr(),
        panels.data_ptr(), is_half(panels), depth, columns, transposed, threads,
    )  # fmt: skip
    return panels


def product(
    left: Tensor, panels: Tensor, columns: int, out: Tensor | None = None, *, threads: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """left (rows, depth) times the packed operand; added to `out` where it is given."""
    rows, depth = left.shape
    result = torch.full((rows, columns), torch.nan, dtype=dtype) if out is None else out
    _native.product(
        left.data_ptr(), is_half(left), left.stride(0), left.stride(1), panels.data_ptr(),
        is_half(panels), rows, depth, columns, result.data_ptr(), is_half(result),
        result.stride(0), out is not None, 1, threads,
    )  # fmt: skip
    return result


def assert_exact_up_to_rounding(result: Tensor, left: Tensor, right: Tensor, start: Tensor) -> None:
    """Errors of a float32 sum grow as the root of its length; the result is rounded once more."""
    exact = left.double() @ right.double() + start.double()
    sizes = left.double().abs() @ right.double().abs() + start.double().abs()
    bound = 2 * (left.shape[1] ** 0.5 + 1) * 2**-24 * sizes
    if is_half(result):
        bound += 2**-8 * exact.abs()
    worst = ((result.double() - exact).abs() / bound).max()
    assert worst <= 1, f"{worst:.2f} times the rounding error of {tuple(left.shape)}"


@pytest.mark.parametrize("depth", SIZES)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("layer_product", ["logits", "hidden gradient", "row gradient"])
def test_the_products_of_a_layer_equal_those_in_float64(depth, dtype, layer_product):
    for rows in SIZES:
        for columns in SIZES:
            left = numbers(1, rows, depth, dtype=dtype)
            if layer_product == "row gradient":
                left = left.t().contiguous().t()
            right = numbers(2, depth, columns, dtype=dtype)
            if layer_product == "logits":
                panels = packed(right.t().contiguous(), dtype, transposed=True)
            else:
                panels = packed(right, dtype)
            assert_exact_up_to_rounding(
                product(left, panels, columns), left, right, torch.zeros(rows, columns)
            )


@pytest.mark.parametrize("panels_in", FORMATS)
@pytest.mark.parametrize("left_in", FORMATS)
@pytest.mark.parametrize("right_in", FORMATS)
@pytest.mark.parametrize("out_in", FORMATS)
def test_operands_take_the_format_of_the_panels(panels_in, left_in, right_in, out_in):
    left, right = numbers(1, 19, 33, dtype=left_in), numbers(2, 33, 70, dtype=right_in)
    start = numbers(3, 19, 70, dtype=out_in)
    for transposed in (False, True):
        panels = packed(right.t().contiguous() if transposed else right, panels_in,
                        transposed=transposed)  # fmt: skip
        for operand in (left, left.t().contiguous().t()):
            rounded = operand.to(panels_in), right.to(panels_in)
            result = product(operand, panels, 70, dtype=out_in)
            assert_exact_up_to_rounding(result, *rounded, torch.zeros(19, 70))
            added = product(operand, panels, 70, start.clone())
            assert_exact_up_to_rounding(added, *rounded, start)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_product_deeper_than_a_block_of_the_cache(dtype):
    left, right = numbers(1, 2561, 70, dtype=dtype).t(), numbers(2, 2561, 70, dtype=dtype)
    for out_in in FORMATS:
        result = product(left, packed(right, dtype), 70, dtype=out_in)
        assert_exact_up_to_rounding(result, left, right, torch.zeros(70, 70))


@pytest.mark.parametrize("table_in", FORMATS)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_a_table_are_packed_where_they_lie(table_in, dtype, transposed):
    table = numbers(1, 300, 37, dtype=table_in)
    rows = torch.randint(300, (131,), generator=torch.Generator().manual_seed(2))
    gathered = packed(table[rows], dtype, transposed=transposed)
    in_place = packed(table, dtype, transposed=transposed, rows=rows)
    assert torch.allclose(in_place, gathered, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
def test_neither_threads_nor_ranges_of_rows_change_a_bit(dtype):
    left, right = numbers(1, 131, 700, dtype=dtype), numbers(2, 700, 331, dtype=dtype)
    one = product(left, packed(right, dtype), 331)
    for threads in (2, 3, 5):
        assert torch.equal(product(left, packed(right, dtype, threads=threads), 331), one)
        assert torch.equal(product(left, packed(right, dtype), 331, threads=threads), one)
    for row in (0, 1, 64, 130):
        assert torch.equal(product(left[row : row + 1], packed(right, dtype), 331)[0], one[row])
    across = left.t().contiguous().t()
    assert torch.equal(product(across, packed(right, dtype), 331), one)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_reach_their_row_or_column_and_nothing_else(dtype, odd):
    left, right = numbers(1, 9, 21, dtype=dtype), numbers(2, 21, 19, dtype=dtype)
    plain = product(left, packed(right, dtype), 19)
    bad_left = left.clone()
    bad_left[4, 20] = odd
    result = product(bad_left, packed(right, dtype), 19)
    assert torch.isfinite(result[4]).sum() == 0
    assert torch.equal(torch.cat([result[:4], result[5:]]), torch.cat([plain[:4], plain[5:]]))
    bad_right = right.clone()
    bad_right[20, 7] = odd
    result = product(left, packed(bad_right, dtype), 19)
    assert torch.isfinite(result[:, 7]).sum() == 0
    assert torch.equal(
        torch.cat([result[:, :7], result[:, 8:]], 1), torch.cat([plain[:, :7], plain[:, 8:]], 1)
    )


def test_float32_denormals_are_kept():
    tiny = torch.full((1, 1), 2.0**-140)
    assert product(tiny, packed(torch.ones(1, 1), torch.float32), 1).item() == 2.0**-140


def test_numbers_outside_the_result_are_left_alone():
    wide = torch.full((5, 40), 7.0)
    left, panels = numbers(1, 5, 16), packed(numbers(2, 16, 23), torch.float32)
    expected = wide[:, :23] + 0.0
    product(left, panels, 23, wide[:, :23])
    product(left, panels, 23, expected)
    assert torch.equal(wide[:, :23], expected)
    assert (wide[:, 23:] == 7).all()


LAYOUTS = ["as it lies", "transposed", "rows of a wider one", "columns of a taller one"]


def laid_out(layout: str, seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    *batch, rows, columns = shape
    if layout == "transposed":
        return numbers(seed, *batch, columns, rows, dtype=dtype).mT
    if layout == "rows of a wider one":
        return numbers(seed, *batch, rows, columns + 5, dtype=dtype)[..., 2 : 2 + columns]
    if layout == "columns of a taller one":
        return numbers(seed, *batch, columns, rows + 3, dtype=dtype).mT[..., 1 : 1 + rows, :]
    return numbers(seed, *shape, dtype=dtype)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (9,)])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("left_layout", LAYOUTS)
@pytest.mark.parametrize("right_layout", LAYOUTS)
def test_products_of_arrays_as_they_lie(batch, dtype, left_layout, right_layout):
    for rows, depth, columns in [(5, 1, 7), (1, 8, 3), (130, 70, 33), (20, 257, 1), (64, 64, 64)]:
        left = laid_out(left_layout, 1, *batch, rows, depth, dtype=dtype)
        right = laid_out(right_layout, 2, *batch, depth, columns, dtype=dtype)
        for result in (
            matrix_product(left, right),
            matrix_product(left, right, torch.full((*batch, rows, columns), torch.nan)),
        ):
            assert result.shape == (*batch, rows, columns)
            for one in zip(result, left, right, strict=True) if batch else [(result, left, right)]:
                assert_exact_up_to_rounding(one[0].to(dtype), *one[1:], torch.zeros(()))


def test_products_of_arrays_without_elements():
    assert matrix_product(torch.ones(0, 3), torch.ones(3, 5)).shape == (0, 5)
    assert matrix_product(torch.ones(5, 3), torch.ones(3, 0)).shape == (5, 0)
    assert matrix_product(torch.ones(0, 5, 3), torch.ones(0, 3, 5)).shape == (0, 5, 5)
    assert not matrix_product(torch.ones(5, 0), torch.ones(0, 6)).any()


def test_products_do_not_depend_on_the_number_of_threads():
    left, right = numbers(1, 3, 300, 90), numbers(2, 3, 90, 140)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(matrix_product(left, right).clone())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_product_that_does_not_fit_is_refused():
    with pytest.raises(RuntimeError):
        matrix_product(torch.ones(5, 3), torch.ones(4, 6))
    with pytest.raises(ValueError, match="into"):
        matrix_product(torch.ones(5, 3), torch.ones(3, 6), torch.ones(5, 7))
    with pytest.raises(ValueError, match="into"):
        matrix_product(torch.ones(5, 3), torch.ones(3, 6), torch.ones(6, 5).mT)
