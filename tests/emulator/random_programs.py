"""Random Triton programs against NumPy: a differential test of the compiled code's execution.

    python -m tests.emulator.random_programs --count 1000 --seed 7 --arch gfx950

A program loads a few inputs (random bits and the edges of each dtype), computes expressions over all dtypes, and stores
them. Hypothesis draws it and shrinks one that fails; the report is the Triton source and the first wrong elements.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import click
import numpy as np
import torch
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from harness import emulator
from harness.emulator.driver import translated
from tests.emulator.random_operations import (
    ENDS,
    INTEGERS,
    MASK,
    NUMBERS,
    NUMPY,
    OPERATIONS,
    SHAPES,
    TRITON,
    Operation,
    bits,
    to_bf16,
)

SLOTS = 3
MAXIMUM_DEPTH = 4
UNTOUCHED = 0xA5  # the content of an output where nothing is stored


@dataclass(frozen=True)
class Node:
    """A value of a program: a leaf (``load``, ``constant``, ``position``) or an operation on other values."""

    operation: str | Operation
    dtype: str
    arguments: tuple[Node, ...] = ()
    parameter: Any = 0

    def __str__(self) -> str:
        name = self.operation if isinstance(self.operation, str) else self.operation.name
        return f"{name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Program:
    """A random program: ``outputs`` are stored, for the first ``n`` elements of a block of ``shape``."""

    shape: tuple[int, ...]
    warps: int
    n: int
    outputs: tuple[Node, ...]

    def nodes(self) -> list[Node]:
        """Return every value once, operands before the values that use them."""
        ordered: dict[Node, None] = {}

        def visit(node: Node) -> None:
            if node not in ordered:
                for argument in node.arguments:
                    visit(argument)
                ordered[node] = None

        for output in self.outputs:
            visit(output)
        return list(ordered)

    @property
    def operations(self) -> int:
        return sum(isinstance(node.operation, Operation) for node in self.nodes())


# -- drawing -----------------------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn, dtypes: Sequence[str] = NUMBERS) -> Program:
    """Draw programs of one to three outputs of ``dtypes``."""
    shape = draw(st.sampled_from(SHAPES))
    made: dict[str, list[Node]] = {}
    outputs = []
    for _ in range(draw(st.integers(1, 3))):
        node = _value(draw, draw(st.sampled_from(dtypes)), MAXIMUM_DEPTH, shape, made)
        if node.dtype == "f32" and draw(st.integers(0, 3)) == 3:
            node = Node(draw(st.sampled_from(ENDS)), "f32", (node,))
        outputs.append(node)
    size = int(np.prod(shape))
    return Program(shape, draw(st.sampled_from((1, 4, 2, 8))), size - draw(st.sampled_from((0, 1, 17))), tuple(outputs))


_BY_RESULT = {t: [o for o in OPERATIONS if t in o.results] for t in (*NUMBERS, MASK)}


def _value(draw: st.DrawFn, dtype: str, depth: int, shape: tuple[int, ...], made: dict[str, list[Node]]) -> Node:
    kind = draw(st.integers(0, 11))
    if depth == 0 or kind < 2:
        return _leaf(draw, dtype)
    if kind == 2 and made.get(dtype):
        return draw(st.sampled_from(made[dtype]))
    operation = draw(st.sampled_from([o for o in _BY_RESULT[dtype] if shape in o.shapes]))
    other = draw(st.sampled_from(operation.others)) if operation.others else ""
    dtypes = [{"T": dtype, "X": other}.get(a, a) for a in operation.arguments]
    arguments = tuple(_value(draw, t, depth - 1, shape, made) for t in dtypes)
    node = Node(operation, dtype, arguments, draw(st.integers(0, len(shape) - 1)) if operation.axis else 0)
    made.setdefault(dtype, []).append(node)
    return node


def _leaf(draw: st.DrawFn, dtype: str) -> Node:
    if dtype == MASK:
        less = next(o for o in OPERATIONS if o.name == "<")
        return Node(less, MASK, (_leaf(draw, "i32"), _leaf(draw, "i32")))
    kind = draw(st.integers(0, 4))
    if kind < 3:
        masked = draw(st.booleans())
        return Node(
            "load", dtype, (), (draw(st.integers(0, SLOTS - 1)), draw(st.sampled_from((0, 1, 7))) if masked else None)
        )
    if kind == 3:
        return Node("constant", dtype, (), draw(st.sampled_from(range(len(edges(dtype))))))
    return Node("position", dtype)


# -- what a program computes -------------------------------------------------------------------------------------------


def edges(dtype: str) -> np.ndarray:
    """Return the edge values of a dtype, simple ones first."""
    if dtype in INTEGERS:
        info = np.iinfo(NUMPY[dtype])
        return np.array([0, 1, 2, 7, info.max, info.min, info.max - 1, info.max // 2 + 1, 100], NUMPY[dtype])
    tiny, largest = {"f16": (2.0**-24, 65504.0), "bf16": (2.0**-133, float.fromhex("0x1.FEp127")),
                     "f32": (2.0**-149, float.fromhex("0x1.FFFFFEp127")),
                     "f64": (2.0**-1074, float.fromhex("0x1.FFFFFFFFFFFFFp1023"))}[dtype]  # fmt: skip
    values = [0.0, 1.0, -1.0, 2.0, 0.5, -0.0, np.inf, -np.inf, np.nan, largest, -largest, tiny, -3 * tiny, 3.0, 127.5]
    return np.array(values, NUMPY[dtype])


def inputs(dtype: str, slot: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return random bits, with every third element an edge value, in an order that depends on the slot."""
    generator = np.random.default_rng([slot, NUMBERS.index(dtype)])
    size = int(np.prod(shape))
    values = _from_memory(generator.integers(0, 256, size * bits(dtype) // 8, np.uint8), dtype)
    known = edges(dtype)
    places = np.arange(0, size, 3)
    values[places] = known[places // 3 * (slot + 1) % len(known)]
    if dtype == "bf16":
        # Compiled code widens bf16 by a shift, which keeps a NaN signalling, and v_min_f32 then returns NaN, as LLVM's
        # minnum may.
        values[np.isnan(values)] = np.nan
    return values.reshape(shape)


def _from_memory(memory: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (memory.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return memory.view(NUMPY[dtype]).copy()


def _to_memory(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(values)


def reference(program: Program) -> list[np.ndarray]:
    """Return the outputs that NumPy computes."""
    values: dict[Node, np.ndarray] = {}
    at = np.arange(np.prod(program.shape)).reshape(program.shape)
    with np.errstate(all="ignore"):
        for node in program.nodes():
            if isinstance(node.operation, Operation):
                arrays = [values[a] for a in node.arguments]
                values[node] = node.operation.meaning(node.dtype, node.parameter, *arrays)
            elif node.operation == "load":
                slot, other = node.parameter
                loaded = inputs(node.dtype, slot, program.shape)
                values[node] = (
                    loaded if other is None else np.where(at < program.n, loaded, NUMPY[node.dtype].type(other))
                )
            elif node.operation == "constant":
                values[node] = np.full(program.shape, edges(node.dtype)[node.parameter])
            else:
                position = at.astype(NUMPY[node.dtype])
                values[node] = to_bf16(position) if node.dtype == "bf16" else position
    return [values[node] for node in program.outputs]


def source(program: Program) -> str:
    """Return the program's Triton source."""
    nodes = program.nodes()
    names = {node: f"v{i}" for i, node in enumerate(nodes)}
    loads = sorted({(n.dtype, n.parameter[0]) for n in nodes if n.operation == "load"})
    parameters = [f"{t}_{slot}" for t, slot in loads] + [f"out{i}" for i in range(len(program.outputs))]
    lines = [f"def program({', '.join(parameters)}, n):", f"    at = {_position(program.shape)}"]
    lines += [f"    {names[node]} = {_text(node, names, program.shape)}" for node in nodes]
    lines += [f"    tl.store(out{i} + at, {names[o]}, mask=at < n)" for i, o in enumerate(program.outputs)]
    return _PRELUDE + "\n".join(lines) + "\n"


_PRELUDE = """\
import triton
import triton.language as tl


@triton.jit
def divisor(x, SIGNED: tl.constexpr):
    bad = x == 0
    if SIGNED:
        bad = bad | (x == -1)
    return tl.where(bad, 3, x)


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
"""


def _position(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"tl.arange(0, {shape[0]})"
    return f"tl.arange(0, {shape[0]})[:, None] * {shape[1]} + tl.arange(0, {shape[1]})[None, :]"


def _text(node: Node, names: dict[Node, str], shape: tuple[int, ...]) -> str:
    t = TRITON[node.dtype]
    if isinstance(node.operation, Operation):
        arguments = [names[a] for a in node.arguments]
        axis = node.parameter
        return node.operation.text.format(
            *arguments, t=t, shape=shape, p=axis, length=shape[axis], top=bits(node.dtype) - 1
        )
    if node.operation == "load":
        slot, other = node.parameter
        masked = "" if other is None else f", mask=at < n, other={other}"
        return f"tl.load({node.dtype}_{slot} + at{masked})"
    if node.operation == "constant":
        value = _to_memory(edges(node.dtype), node.dtype)[node.parameter]
        if node.dtype in INTEGERS:
            return f"tl.full({shape}, {value}, {t})"
        # Passed as bits: Triton turns a constant -0.0, and a denormal one of bf16, into 0.
        word = int(value.view(f"u{value.itemsize}"))
        return f"tl.full({shape}, {word:#x}, tl.uint{bits(node.dtype)}).to({t}, bitcast=True)"
    return f"at.to({t})"


# -- running and comparing ---------------------------------------------------------------------------------------------


def check(program: Program, folder: Path, launches: int = 1) -> None:
    """Run the program on the active device, and check the last launch; ``AssertionError`` if an output is wrong."""
    module = _load(source(program), folder)
    wanted = reference(program)
    loads = sorted({(n.dtype, n.parameter[0]) for n in program.nodes() if n.operation == "load"})
    arguments = [_tensor(_to_memory(inputs(t, slot, program.shape), t), t) for t, slot in loads]
    memories = [np.empty(w.size * bits(o.dtype) // 8, np.uint8) for w, o in zip(wanted, program.outputs, strict=True)]
    outputs = [_tensor(m, o.dtype) for m, o in zip(memories, program.outputs, strict=True)]
    for _ in range(launches):
        for memory in memories:
            memory[:] = UNTOUCHED
        module.program[(1,)](*arguments, *outputs, program.n, num_warps=program.warps, enable_fp_fusion=False)
    for i, (memory, expected, node) in enumerate(zip(memories, wanted, program.outputs, strict=True)):
        got = _from_memory(memory, node.dtype)
        flat = expected.ravel()
        right = _equal(got, flat, getattr(node.operation, "ulps", 0))
        right[program.n :] = (memory.reshape(len(flat), -1)[program.n :] == UNTOUCHED).all(axis=1)
        wrong = np.flatnonzero(~right)
        if len(wrong):
            shown = ", ".join(f"[{k}]: {got[k]!r} instead of {flat[k]!r}" for k in wrong[:4])
            raise AssertionError(f"output {i}, {node}: {len(wrong)} elements differ: {shown}")


def _equal(got: np.ndarray, wanted: np.ndarray, ulps: int) -> np.ndarray:
    """Compare bits, with all NaN equal; or values, within that many units in the last place."""
    if got.dtype.kind != "f":
        return got == wanted
    if ulps:
        with np.errstate(all="ignore"):
            near = np.abs(got.astype(np.float64) - wanted) <= ulps * np.spacing(np.abs(wanted.astype(np.float32)))
    else:
        word = np.dtype(f"u{got.itemsize}")
        near = got.view(word) == np.ascontiguousarray(wanted).view(word)
    return near | (np.isnan(got) & np.isnan(wanted))


def _tensor(memory: np.ndarray, dtype: str) -> torch.Tensor:
    torch_dtype = getattr(torch, {"f": "float", "i": "int", "u": "uint", "b": "bfloat"}[dtype[0]] + str(bits(dtype)))
    return torch.from_numpy(memory.reshape(-1).view(np.uint8)).view(torch_dtype)


def _load(text: str, folder: Path) -> ModuleType:
    """Load a kernel's source from a file, where Triton needs it."""
    name = "program_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # sanity check
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def failing(
    count: int, seed: int, folder: Path, dtypes: Sequence[str] = NUMBERS, launches: int = 1
) -> tuple[Program, Exception] | None:
    """Return the simplest failing one of ``count`` programs, and its error; None if all pass."""
    failures: dict[Program, Exception] = {}

    def fails(program: Program) -> bool:
        try:
            check(program, folder, launches)
        except Exception as error:  # noqa: BLE001 - a kernel that does not compile or run is a failure too
            failures[program] = error
        return program in failures

    try:
        program = find(programs(dtypes), fails, settings=_settings(count), random=Random(seed))
    except NoSuchExample:
        return None
    return program, failures[program]


def _settings(count: int) -> settings:
    return settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


def compile_at_once() -> None:
    """Translate each program at its first launch."""
    translated.COMPILING_FORM = translated.LOADING_STEP = 0.0


@click.command()
@click.option("--count", default=100, show_default=True, help="How many programs.")
@click.option("--seed", default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--arch", type=click.Choice(emulator.ARCHS), default=emulator.ARCHS[0], show_default=True)
@click.option("--compiled", is_flag=True, help="Test the emulator's machine code, not its interpreter.")
def main(count: int, seed: int, arch: str, compiled: bool) -> None:
    """Run random programs; if one fails, exit with status 1 and print the simplest failing one."""
    emulator.activate(arch)
    if compiled:
        compile_at_once()
    with tempfile.TemporaryDirectory() as folder:
        failure = failing(count, seed, Path(folder), launches=2 if compiled else 1)
    if failure is not None:
        program, error = failure
        raise SystemExit(f"{type(error).__name__}: {error}\n{source(program)}")
    click.echo(f"{count} programs agree with NumPy on {arch}, seed {seed}")


if __name__ == "__main__":
    main()
