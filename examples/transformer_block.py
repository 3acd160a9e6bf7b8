"""One layer of an 8B-parameter transformer on the emulated device: forward, batch 1, bf16, all in Triton kernels.

    python examples/transformer_block.py                # 128 tokens of the full size: 218 million parameters
    python examples/transformer_block.py --scale 8      # each width divided by 8, for a quick look

RMS norm, rotary embedding, causal attention with grouped keys, and matrix products, of the sizes of Llama 3 8B: width
4096, 32 heads of 128, 8 of keys and values, 14336 in the feed-forward part. Prints the time of each kernel, and exits
with status 1 if the result differs from torch's by more than the rounding to bf16 explains.
"""

import argparse
import time

import torch
import triton
import triton.language as tl

from harness import emulator


@triton.jit
def rms_norm(x, weight, out, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """out[row] = x[row] / sqrt(mean(x[row] ** 2) + epsilon) * weight. Example: the row [3, 4] becomes [3, 4] / 3.54."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = columns < WIDTH
    values = tl.load(x + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / WIDTH + epsilon)
    gain = tl.load(weight + columns, mask=inside).to(tl.float32)
    tl.store(out + row * WIDTH + columns, (values * scale * gain).to(tl.bfloat16), mask=inside)


@triton.jit
def product(x, weight, add, out, N, K, ADD: tl.constexpr, M_TILE: tl.constexpr, N_TILE: tl.constexpr,
            K_TILE: tl.constexpr):  # fmt: skip
    """out = x @ weight.T (+ add): x [rows, K], weight [N, K], add and out [rows, N], in whole tiles."""
    rows = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    columns = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    inner = tl.arange(0, K_TILE)
    total = tl.zeros((M_TILE, N_TILE), tl.float32)
    for first in range(0, K, K_TILE):
        left = tl.load(x + rows[:, None] * K + (first + inner)[None, :])
        right = tl.load(weight + columns[None, :] * K + (first + inner)[:, None])
        total = tl.dot(left, right, total)
    place = rows[:, None] * N + columns[None, :]
    if ADD:
        total += tl.load(add + place).to(tl.float32)
    tl.store(out + place, total.to(tl.bfloat16))


@triton.jit
def rotate(x, cosines, sines, HALF: tl.constexpr):
    """Turn the two halves of each head of x [tokens, heads, 2 * HALF] against each other, in place."""
    token, head = tl.program_id(0), tl.program_id(1)
    lower = x + (token * tl.num_programs(1) + head) * 2 * HALF + tl.arange(0, HALF)
    cosine = tl.load(cosines + token * HALF + tl.arange(0, HALF))
    sine = tl.load(sines + token * HALF + tl.arange(0, HALF))
    a, b = tl.load(lower).to(tl.float32), tl.load(lower + HALF).to(tl.float32)
    tl.store(lower, (a * cosine - b * sine).to(tl.bfloat16))
    tl.store(lower + HALF, (b * cosine + a * sine).to(tl.bfloat16))


@triton.jit
def attention(q, k, v, out, scale, HEADS: tl.constexpr, SHARED: tl.constexpr, HEAD: tl.constexpr, ROWS: tl.constexpr):
    """Causal attention of one tile of queries of one head; SHARED heads have the same keys and values."""
    tile, head = tl.program_id(0), tl.program_id(1)
    rows, inner = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, HEAD)
    place = rows[:, None] * HEADS * HEAD + head * HEAD + inner[None, :]
    query = tl.load(q + place)
    highest, total = tl.full((ROWS,), -float("inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, HEAD), tl.float32)
    width: tl.constexpr = HEADS // SHARED * HEAD
    for first in range(0, (tile + 1) * ROWS, ROWS):
        keys = first + tl.arange(0, ROWS)
        key = tl.load(k + keys[None, :] * width + head // SHARED * HEAD + inner[:, None])
        score = tl.dot(query, key) * (scale * 1.44269504)
        score = tl.where(rows[:, None] >= keys[None, :], score, -float("inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight, fade = tl.exp2(score - new[:, None]), tl.exp2(highest - new)
        total = total * fade + tl.sum(weight, 1)
        value = tl.load(v + keys[:, None] * width + head // SHARED * HEAD + inner[None, :])
        result = tl.dot(weight.to(tl.bfloat16), value, result * fade[:, None])
        highest = new
    tl.store(out + place, (result / total[:, None]).to(tl.bfloat16))


@triton.jit
def gate(x, y, out, BLOCK: tl.constexpr):
    """out = silu(x) * y. Example: x = 1, y = 2 gives 1.46."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i).to(tl.float32), tl.load(y + i).to(tl.float32)
    tl.store(out + i, (a / (1 + tl.exp(-a)) * b).to(tl.bfloat16))


class Block:
    """The layer's weights, random, and its sizes: those of Llama 3 8B divided by ``scale``."""

    def __init__(self, scale: int) -> None:
        self.width, self.hidden, self.head = 4096 // scale, 14336 // scale, 128
        self.heads, self.shared = max(4, 32 // scale), 4
        draw = torch.Generator().manual_seed(0)

        def weight(rows: int, columns: int) -> torch.Tensor:
            values = torch.empty(rows, columns, dtype=torch.bfloat16)
            return values.normal_(0, columns**-0.5, generator=draw)

        query, keys = self.heads * self.head, self.heads // self.shared * self.head
        self.query, self.key, self.value = (weight(n, self.width) for n in (query, keys, keys))
        self.output = weight(self.width, query)
        self.gate, self.up = (weight(self.hidden, self.width) for _ in range(2))
        self.down = weight(self.width, self.hidden)
        self.norms = [torch.ones(self.width, dtype=torch.bfloat16).normal_(1, 0.1, generator=draw) for _ in range(2)]

    def parameters(self) -> int:
        return sum(w.numel() for w in (self.query, self.key, self.value, self.output, self.gate, self.up, self.down))


def angles(tokens: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of the rotary embedding, float32 [tokens, head / 2]."""
    turns = torch.arange(tokens)[:, None] * 500000.0 ** -(torch.arange(0, head, 2) / head)
    return turns.cos(), turns.sin()


def forward(block: Block, x: torch.Tensor) -> torch.Tensor:
    """Run the layer in Triton kernels. x, bf16 [tokens, width]; tokens is a multiple of 64."""
    tokens = len(x)

    def timed(name: str, launch: object) -> None:
        start = time.perf_counter()
        launch()
        print(f"{name:32} {time.perf_counter() - start:7.2f} s", flush=True)

    def norm(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(values)
        size = triton.next_power_of_2(block.width)
        timed("RMS norm", lambda: rms_norm[(tokens,)](values, weight, out, 1e-5, block.width, size, num_warps=8))
        return out

    def times(name: str, values: torch.Tensor, weight: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        n, k = weight.shape
        out = torch.empty(tokens, n, dtype=torch.bfloat16)
        grid = tokens // 64, n // 64
        timed(
            f"product {tokens} x {k} x {n} ({name})",
            lambda: product[grid](values, weight, out if add is None else add, out, n, k, add is not None, 64, 64, 64),
        )
        return out

    normed = norm(x, block.norms[0])
    q, k, v = (times(n, normed, w) for n, w in (("q", block.query), ("k", block.key), ("v", block.value)))
    cosines, sines = angles(tokens, block.head)
    for values, heads in ((q, block.heads), (k, block.heads // block.shared)):
        grid = tokens, heads
        timed("rotary embedding", lambda v=values, g=grid: rotate[g](v, cosines, sines, block.head // 2, num_warps=1))
    mixed = torch.empty_like(q)
    timed(
        "attention",
        lambda: attention[(tokens // 64, block.heads)](
            q, k, v, mixed, block.head**-0.5, block.heads, block.shared, block.head, 64
        ),
    )
    x = times("output", mixed, block.output, x)
    normed = norm(x, block.norms[1])
    a, b = times("gate", normed, block.gate), times("up", normed, block.up)
    hidden = torch.empty_like(a)
    timed("gate", lambda: gate[(a.numel() // 1024,)](a, b, hidden, 1024))
    return times("down", hidden, block.down, x)


def reference(block: Block, x: torch.Tensor) -> torch.Tensor:
    """Compute the layer with torch, rounding to bf16 where the kernels do; float32 in between."""

    def narrow(values: torch.Tensor) -> torch.Tensor:
        return values.bfloat16().float()

    def norm(values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return narrow(values * (values.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight.float())

    def turn(values: torch.Tensor, heads: int) -> torch.Tensor:
        cosines, sines = (each[:, None] for each in angles(len(values), block.head))
        a, b = values.view(len(values), heads, block.head).chunk(2, -1)
        return narrow(torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1)).transpose(0, 1)

    x = x.float()
    normed = norm(x, block.norms[0])
    q, k, v = (narrow(normed @ w.float().T) for w in (block.query, block.key, block.value))
    groups = block.heads // block.shared
    q, k = turn(q, block.heads), turn(k, groups)
    v = v.view(len(x), groups, block.head).transpose(0, 1)
    k, v = (each.repeat_interleave(block.shared, 0) for each in (k, v))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    mixed = narrow(mixed.transpose(0, 1).reshape(len(x), -1))
    x = narrow(x + mixed @ block.output.float().T)
    normed = norm(x, block.norms[1])
    a, b = (narrow(normed @ w.float().T) for w in (block.gate, block.up))
    return x + narrow(torch.nn.functional.silu(a) * b) @ block.down.float().T


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--arch", choices=emulator.ARCHS, default="gfx942", help="the GPU to compile for")
    parser.add_argument("--scale", type=int, choices=(1, 2, 4, 8), default=1, help="divide each width by this")
    parser.add_argument("--tokens", type=int, default=128, help="length of the sequence, a multiple of 64")
    options = parser.parse_args()
    if options.tokens < 64 or options.tokens % 64:
        parser.error(f"--tokens: expected a positive multiple of 64, got {options.tokens}")
    emulator.activate(options.arch)
    block = Block(options.scale)
    x = torch.randn(options.tokens, block.width, generator=torch.Generator().manual_seed(1)).bfloat16()
    start = time.perf_counter()
    result = forward(block, x).float()
    taken = time.perf_counter() - start
    wanted = reference(block, x)
    worst = ((result - wanted).abs() / (wanted.abs() + wanted.square().mean().sqrt())).max().item()
    size = block.parameters() / 1e6
    print(f"{size:.0f} million parameters in {taken:.1f} s, largest relative difference {worst:.1e}")
    return 0 if worst < 2**-6 else 1


if __name__ == "__main__":
    raise SystemExit(main())
