"""The arguments of a compiled kernel: where each is, and how it is written.

The metadata of the listing has the offsets of the arguments (``.args``), Triton's signature has their types. The last
ones are Triton's scratch memories, and the hidden arguments of the code object.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from triton.runtime import _allocation
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from harness.emulator.execution.hostcall import Hostcall
from harness.emulator.execution.launch import QUEUE
from harness.emulator.wavefront import entry
from harness.errors import HarnessError

# How to reach an argument: an index into a tuple, or the name of an attribute of a descriptor.
ArgumentPath = tuple[int | str, ...]
# (address, bytes, label) of memory that an argument points to.
Memory = tuple[int, int, str]


class Pointer(NamedTuple):
    """An argument that is an address."""

    path: ArgumentPath
    name: str
    offset: int


class Value(NamedTuple):
    """An argument of another type. ``form``: as in ``struct``; ``convert`` makes what is written of the argument."""

    path: ArgumentPath
    name: str
    offset: int
    form: str
    convert: Callable[[Any], Any] | None = None


_FORMS = {
    "i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
    "u1": "?", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip
_INTEGERS = "bhiqBHIQ"
_DESCRIPTOR = re.compile(r"tensordesc<[^\[>]*\[([^\]]*)\]")
_Tensor = torch.Tensor
# Types of elements that may be addresses.
_WIDE = (torch.int64, torch.uint64)
APART = -1
"""For the number of elements of a tensor that is not contiguous."""


class Placed(NamedTuple):
    """``memory`` that the arguments point to, tensors of 64-bit integers as (address, number of elements), and objects
    that must live as long as the launch."""

    memory: list[Memory]
    tensors: list[tuple[int, int]]
    keep_alive: list[object]


class Arguments:
    """Writes the arguments of each launch to ``block``, uint8[bytes], at ``address``.

    ``candidates`` are the offsets of arguments that may be addresses: pointers, then 64-bit integers; ``positions``
    have their places among all arguments. ``scratch``: (bytes for each work-group, alignment) of Triton's two scratch
    memories, global and of the profiler, if the kernel has any.
    """

    def __init__(self, src: Any, metadata: dict[str, Any], scratch: Sequence[tuple[int, int]]) -> None:
        """``src`` as Triton passes it, ``metadata`` of the kernel in the listing; ``scratch`` of both memories."""
        arguments = metadata.get(".args", [])
        hidden = [a for a in arguments if a[".value_kind"].startswith("hidden_")]
        self._hidden = [(a[".value_kind"], int(a[".offset"]), int(a[".size"])) for a in hidden]
        self.calls_host = any(kind == "hidden_hostcall_buffer" for kind, _, _ in self._hidden)
        offsets = [int(a[".offset"]) for a in arguments if a not in hidden]
        size = int(metadata[".kernarg_segment_size"])
        self.block = np.zeros(max(8, -(-size // 8) * 8), np.uint8)
        self.address = int(self.block.ctypes.data)
        self._bytes: memoryview = self.block.data
        self.pointers, self.values, self.integers = _places(src, offsets)
        pointed = [pointer.offset for pointer in self.pointers]
        self.candidates = [*pointed, *(each.offset for each in self.integers)]
        self.positions = [offsets.index(offset) for offset in self.candidates]
        self._names = [(pointer.name, f"argument {pointer.name}") for pointer in self.pointers]
        self._pick_pointers = _picker([pointer.path for pointer in self.pointers])
        self._pick_values = _picker([value.path for value in self.values])
        self._converted = [(i, value.convert) for i, value in enumerate(self.values) if value.convert]
        self._forms = [*("Q" for _ in self.pointers), *(value.form for value in self.values)]
        places = [*pointed, *(value.offset for value in self.values)]
        self._order = sorted(range(len(places)), key=places.__getitem__)
        self._sorted = self._order == list(range(len(places)))
        self._struct = _struct([(places[i], self._forms[i]) for i in self._order])
        self._unsigned = _struct([(places[i], _unsigned(self._forms[i])) for i in self._order])
        self._scratch_offsets = offsets[len(places) :]
        self.scratch = tuple(scratch) if any(size for size, _ in scratch) else ()
        self._grid: tuple[int, int, int] | None = None

    def place(self, arguments: Sequence[Any], check: Callable[[torch.Tensor, str], None], groups: int) -> Placed:
        """Write the arguments. ``check`` raises for a tensor whose memory cannot be accessed, named by the second
        argument; ``groups``: number of work-groups."""
        placed = Placed([], [], [])
        fields: list[Any] = []
        for value, (name, label) in zip(self._pick_pointers(arguments), self._names):  # noqa: B905  # as many
            given = value
            if type(value) is not _Tensor:
                given = value.base if isinstance(value, TensorWrapper) else value
                if not hasattr(given, "untyped_storage"):
                    fields.append(given.data_ptr() if hasattr(given, "data_ptr") else given or 0)
                    continue
            if isinstance(given, _Tensor):
                check(given, name)
                if given is value and value.dtype in _WIDE:
                    placed.tensors.append((value.data_ptr(), value.numel() if value.is_contiguous() else APART))
            storage = given.untyped_storage()
            fields.append(given.data_ptr())
            placed.memory.append((storage.data_ptr(), storage.nbytes(), label))
        fields += self._pick_values(arguments)
        for i, convert in self._converted:
            fields[len(self.pointers) + i] = convert(fields[len(self.pointers) + i])
        self._write(fields)
        if self.scratch:
            self._place_scratch(placed, groups)
        return placed

    def _write(self, fields: list[Any]) -> None:
        if not self._sorted:
            fields = [fields[i] for i in self._order]
        try:
            self._struct.pack_into(self._bytes, 0, *fields)
        except struct.error:
            # An argument typed i32 may hold a value above 2**31 - 1, or one typed u32 a negative value: pass the bits.
            forms = [self._forms[i] for i in self._order]
            bits = [_bits(value, form) for value, form in zip(fields, forms, strict=True)]
            self._unsigned.pack_into(self._bytes, 0, *bits)

    def _place_scratch(self, placed: Placed, groups: int) -> None:
        allocators = (_allocation._allocator.get(), _profile_allocator())
        words = self.block.view(np.uint64)
        for offset, (size, align), allocate in zip(self._scratch_offsets, self.scratch, allocators, strict=False):
            if size:
                memory = allocate(size * groups, align, 0)
                placed.keep_alive.append(memory)
                placed.memory.append((memory.data_ptr(), size * groups, "Triton's scratch memory"))
                words[offset >> 3] = memory.data_ptr()

    def place_hidden(self, grid: tuple[int, int, int], waves: int, lds_bytes: int, hostcall: Hostcall | None) -> None:
        """Write the implicit arguments, such as the grid that gl.num_programs reads."""
        if grid == self._grid and hostcall is None:
            return
        dispatch = entry.Dispatch(grid, waves, lds_bytes, 0, 0, 0 if hostcall is None else hostcall.address)
        for kind, offset, size in self._hidden:
            value = entry.hidden_argument(kind.removeprefix("hidden_"), dispatch, QUEUE.ctypes.data)
            self.block[offset : offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)
        self._grid = grid

    def given(self, arguments: Sequence[Any]) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
        """Return the arguments that may be addresses in memory that no argument owns, and the tensors that may hold
        such addresses, by name."""
        values: dict[str, int] = {}
        tensors: dict[str, torch.Tensor] = {}
        for value, (_, label) in zip(self._pick_pointers(arguments), self._names, strict=True):
            if isinstance(value, int):
                values[label] = value
            elif isinstance(value, torch.Tensor):
                if value.dtype in _WIDE:
                    tensors[label] = value
            elif hasattr(value, "data_ptr"):
                values[label] = value.data_ptr()
        values |= {f"argument {each.name}": _at(arguments, each.path) for each in self.integers}
        return values, tensors


def _places(src: Any, offsets: list[int]) -> tuple[list[Pointer], list[Value], list[Value]]:
    """Return the place of each argument: pointers, values, and those of the values that may be addresses."""
    addresses: list[Pointer] = []
    values: list[Value] = []
    integers: list[Value] = []
    places = iter(offsets)

    def visit(kind: Any, path: ArgumentPath, name: str) -> None:
        if isinstance(kind, (tuple, list)):
            for i, inner in enumerate(kind):
                visit(inner, (*path, i), f"{name}[{i}]")
        elif kind == "constexpr":
            return
        elif kind.startswith("tensordesc"):
            place_descriptor(kind, path, name)
        elif kind.startswith("*"):
            addresses.append(Pointer(path, name, next(places)))
        elif kind == "bf16":
            values.append(Value(path, name, next(places), "H", _bf16))
        elif kind in _FORMS:
            values.append(Value(path, name, next(places), _FORMS[kind]))
            if kind in ("i64", "u64"):
                integers.append(values[-1])
        else:
            raise HarnessError(
                f"argument {name} of type {kind!r} cannot be passed to an emulated kernel: "
                "pass scalars, tensors, tensor descriptors or tuples of them"
            )

    def place_descriptor(kind: str, path: ArgumentPath, name: str) -> None:
        """Place a TensorDescriptor as the amd backend does: its parts, then shape and strides again."""
        rank = _descriptor_rank(kind)
        shape, strides = ([(*path, part, i) for i in range(rank)] for part in ("shape", "strides"))
        addresses.append(Pointer((*path, "base"), name, next(places)))
        values.extend(Value(part, name, next(places), "q") for part in (*shape, *strides))
        values.append(Value((*path, "padding"), name, next(places), "?", lambda padding: padding == "nan"))
        if hasattr(TensorDescriptor, "round_f32_to_tf32"):  # older versions of Triton do not pass it
            values.append(Value((*path, "round_f32_to_tf32"), name, next(places), "?"))
        values.extend(Value(part, name, next(places), "i") for part in shape)
        values.extend(Value(part, name, next(places), "q") for part in strides)

    for i, (name, kind) in enumerate(src.signature.items()):
        visit(kind, (i,), str(name))
    return addresses, values, integers


def _picker(paths: list[ArgumentPath]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that returns the arguments at ``paths``."""
    if len(paths) > 1 and all(len(path) == 1 for path in paths):
        return itemgetter(*(path[0] for path in paths))
    return lambda arguments: [_at(arguments, path) for path in paths]


def _at(arguments: Sequence[Any], path: ArgumentPath) -> Any:
    value: Any = arguments
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value


def _struct(fields: list[tuple[int, str]]) -> struct.Struct:
    """Return a struct of fields, given by offset and form, in the order of their offsets."""
    forms, end = ["<"], 0
    for offset, form in fields:
        forms.append(f"{offset - end}x{form}")
        end = offset + struct.calcsize("<" + form)
    return struct.Struct("".join(forms))


def _unsigned(form: str) -> str:
    return form.upper() if form in _INTEGERS else form


def _bits(value: Any, form: str) -> Any:
    """Return an integer's bits as an unsigned number, other values as they are."""
    return int(value) & ((1 << 8 * struct.calcsize("<" + form)) - 1) if form in _INTEGERS else value


def _descriptor_rank(kind: str) -> int:
    """Return the number of dimensions of a type such as ``tensordesc<fp16[16, 32]>``."""
    match = _DESCRIPTOR.match(kind)
    if match is None:
        raise HarnessError(f"the type of a tensor descriptor has an unknown form: {kind!r}")
    return match.group(1).count(",") + 1


def _bf16(value: float) -> int:
    return int(torch.tensor(value, dtype=torch.bfloat16).view(torch.int16)) & 0xFFFF


def _profile_allocator() -> Callable[[int, int, int], Any]:
    """Return the allocator that the program set for the profiler's memory, or one that makes a tensor."""
    allocator = _allocation._profile_allocator.get()
    if isinstance(allocator, _allocation.NullAllocator):
        return lambda size, align, stream: torch.zeros(size, dtype=torch.uint8)
    return cast(Callable[[int, int, int], Any], allocator)
