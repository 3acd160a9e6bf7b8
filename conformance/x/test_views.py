"""Tiles and views: the indices, addresses and masks of a tile's elements, with 64-bit offsets.

The test covers TileView and Tile (.indices, .layout), make_tensor_view (.tile_ptr, .offset_tile_ptr,
.tile_ptr_from_indices, .offset, .number_of_tiles) and the functions tile_layout, tile_ptr and offset_ptr. It compares
pointers and does not dereference them.
"""

import torch
import triton
import triton.language as tl

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

BLOCK_M, BLOCK_N = 4, 8


@triton.jit
def record(slot, address, pointers, mask, masks, places, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Write the pointers, as distances from ``address`` in int32 elements, and the mask into table ``slot``."""
    at = slot * BLOCK_M * BLOCK_N + tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(places + at, (pointers.to(tl.int64) - address) // 4)
    tl.store(masks + at, mask.to(tl.int32))


@triton.jit(
    do_not_specialize=["m", "n", "stride_m", "stride_n", "pid_m", "pid_n", "offset_m", "offset_n"],
)
def view_kernel(
    TileView: tl.constexpr, Tile: tl.constexpr, make_tensor_view: tl.constexpr, tile_layout: tl.constexpr,
    tile_ptr: tl.constexpr, offset_ptr: tl.constexpr, address, places, masks, lines, m, n, stride_m, stride_n,
    pid_m, pid_n, offset_m, offset_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Not a pointer argument: Triton's AMD compiler assumes 32-bit offsets for a pointer to a small tensor.
    base = address.to(tl.pointer_type(tl.int32))
    view = make_tensor_view(base, m, n, stride_m, stride_n)
    place = TileView(pid_m, pid_n, BLOCK_M, BLOCK_N)
    tile = Tile(pid_m, pid_n, BLOCK_M, BLOCK_N, tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32))
    pointers, mask = view.tile_ptr(place)
    record(0, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    pointers, mask = tile_ptr(base, m, n, stride_m, stride_n, pid_m, pid_n, BLOCK_M, BLOCK_N)
    record(1, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    rows, columns, mask = tile.layout(m, n)
    pointers = offset_ptr(base, stride_m, stride_n, rows[:, None], columns[None, :])
    record(2, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    pointers, mask = view.offset_tile_ptr(tile, offset_m, offset_n)
    record(3, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    rows, columns = tile.indices()
    pointers, mask = view.tile_ptr_from_indices(rows + offset_m, columns + offset_n)
    record(4, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    pointers, mask = view.offset(offset_m, offset_n).tile_ptr(place)
    record(5, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    odd = ((rows % 2 == 1)[:, None]) & (columns >= 0)[None, :]
    pointers, mask = view.offset_tile_ptr(place, offset_m, offset_n, odd)
    record(6, address, pointers, mask, masks, places, BLOCK_M, BLOCK_N)
    _, _, mask = tile_layout(pid_m, pid_n, m, n, BLOCK_M, BLOCK_N)
    rows, columns = place.indices()
    tl.store(lines + tl.arange(0, BLOCK_M), rows)
    tl.store(lines + BLOCK_M + tl.arange(0, BLOCK_N), columns)
    tl.store(lines + BLOCK_M + BLOCK_N, view.number_of_tiles(BLOCK_M, BLOCK_N))
    tl.store(lines + BLOCK_M + BLOCK_N + 1, tl.sum(mask.to(tl.int64)))


TABLES = (
    "view.tile_ptr", "tile_ptr", "Tile.layout and offset_ptr", "view.offset_tile_ptr", "view.tile_ptr_from_indices",
    "view.offset", "view.offset_tile_ptr with src_mask",
)  # fmt: skip


def run(env, case):
    (m, n, stride_m, stride_n), (pid_m, pid_n), (offset_m, offset_n) = case.arguments
    x, here = env.under_test.x, env.device.torch_device
    places, masks = torch.zeros(2, len(TABLES), BLOCK_M, BLOCK_N, dtype=torch.int64, device=here)
    lines = torch.zeros(BLOCK_M + BLOCK_N + 2, dtype=torch.int64, device=here)
    with env.acting():
        view_kernel[(1,)](
            x.TileView, x.Tile, x.make_tensor_view, x.tile_layout, x.tile_ptr, x.offset_ptr,
            1 << 40, places, masks, lines, m, n, stride_m, stride_n, pid_m, pid_n, offset_m, offset_n,
            BLOCK_M, BLOCK_N, num_warps=1,
        )  # fmt: skip
    env.settle()
    findings = Findings(env.rank)
    rows = pid_m * BLOCK_M + torch.arange(BLOCK_M)
    columns = pid_n * BLOCK_N + torch.arange(BLOCK_N)
    inside = _mask(rows, columns, m, n)
    for k, name in enumerate(TABLES):
        moved = k >= 3
        rows_of, columns_of = rows + offset_m * moved, columns + offset_n * moved
        right = _mask(rows_of, columns_of, m, n)
        if k == 6:
            right = right & (rows % 2 == 1)[:, None]
        findings.same(
            f"places of {name}", places[k].cpu(), rows_of[:, None] * stride_m + columns_of[None, :] * stride_n
        )
        findings.same(f"mask of {name}", masks[k].cpu(), right.to(torch.int64))
    tiles = -(-m // BLOCK_M) * -(-n // BLOCK_N)
    findings.same("indices, number_of_tiles, and the number of elements that tile_layout masks in", lines.cpu(),
               torch.cat([rows, columns, torch.tensor([tiles, int(inside.sum())])]))  # fmt: skip
    return findings.first


def _mask(rows, columns, m, n):
    return (rows < m)[:, None] & (columns < n)[None, :]


def cases(ranks):
    far = (1 << 33) + 7
    listed = (
        ((5, 11, 11, 1), (1, 1), (0, 0)),
        ((5, 11, 11, 1), (0, 0), (3, 2)),
        ((9, 30, 2, 20), (1, 3), (1, 5)),
        ((70010, 80020, 1 << 18, 1 << 17), (1, 2), (70001, 80003)),
        ((3, far, far, 2), (0, (1 << 29) + 3), (2, 1 << 31)),
        (((1 << 31) - 1, 8, 8, 1), ((1 << 29) - 1, 0), (-4, 0)),
        (((1 << 31) + 9, 8, 8, 1), ((1 << 29) + 1, 0), (1, 0)),
    )
    return [HostCase("views", arguments) for arguments in listed]


@requirement("X-VIEW-001", cases=cases)
def test_views(check, case):
    check(run, case)
