"""Symbolic arrays: the arguments with which an op function is called to compile it instead of executing it.

A ``Value`` replaces a NumPy array. Operators, ufuncs and the array functions of ``functions`` emit LLVM IR instead of
computing, so one definition of an op serves both the interpreter and the compiler. NumPy itself determines the types in
which an operation works (``ufunc.resolve_dtypes``).

The code is emitted for one wavefront. So for an array of shape [W, 64] the lanes are a vector of ``Emitter.width``
elements: all 64, or those of one pass of a loop over parts of a wavefront. An array of shape [W] or [W, 1] is a scalar.
To an op function W is ``WAVES``, more than one, so that no special case for a single
wavefront is taken.

Data is not known while compiling: ``any()`` is True and ``all()`` is False, so an op function may call them only to
take a shortcut. Any other operation that needs data, or that has no lowering, raises ``NotCompilable``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.lib.mixins import NDArrayOperatorsMixin

from harness.emulator.wavefront.state import LANES

WAVES = 2
BOOL = np.dtype(np.bool_)
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
_FLOATS = {F16: ir.HalfType(), F32: ir.FloatType(), F64: ir.DoubleType()}


class NotCompilable(Exception):  # noqa: N818 - a control-flow signal, not an error
    """This step has no compiled form; it stays interpreted."""


class Value(NDArrayOperatorsMixin):
    """An array of ``dtype`` and ``shape`` whose elements are the LLVM value ``ir``; code is emitted to ``emit``."""

    def __init__(self, emit: Emitter, dtype: np.dtype, shape: tuple[int, ...], value: Any = None) -> None:
        self.emit = emit
        self.dtype = dtype
        self.shape = shape
        self._value = value

    @property
    def ir(self) -> Any:
        return self._value

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def lanes(self) -> bool:
        return self.shape[-1:] == (LANES,)

    def copy(self) -> Value:
        return Value(self.emit, self.dtype, self.shape, self.ir)

    def astype(self, dtype: Any, copy: bool = True) -> Value:
        to = np.dtype(dtype)
        return Value(self.emit, to, self.shape, self.emit.cast(self.ir, self.dtype, to))

    def view(self, dtype: Any) -> Value:
        to = np.dtype(dtype)
        if to.itemsize != self.dtype.itemsize or BOOL in (to, self.dtype):
            raise NotCompilable(f"a view of {self.dtype} as {to}")
        return Value(self.emit, to, self.shape, self.emit.bitcast(self.ir, to))

    def assign(self, value: Any, where: Any) -> None:
        """Write ``value`` in place, to the elements of ``where``."""
        if value.shape != self.shape or where is not True:
            raise NotCompilable("writing a part of an array")
        self._value = self.emit.cast(value.ir, value.dtype, self.dtype)

    def any(self, *_: Any, **__: Any) -> bool:
        return True

    def all(self, *_: Any, **__: Any) -> bool:
        return False

    def reshape(self, *shape: int) -> Value:
        if self.lanes or shape != (-1,):
            raise NotCompilable(f"reshape to {shape}")
        return Value(self.emit, self.dtype, (WAVES,), self.ir)

    def argmax(self, axis: int) -> Value:
        """Return the first set lane of a lane mask, 0 if no lane is set."""
        if self.dtype != BOOL or not self.lanes or axis != 1:
            raise NotCompilable("argmax")
        self.emit.require_all_lanes()
        first = self.emit.intrinsic("cttz", self.packed().ir, ir.Constant(ir.IntType(1), 0))
        lane = self.emit.builder.and_(first, ir.Constant(ir.IntType(64), LANES - 1))
        return Value(self.emit, np.dtype(np.int64), (WAVES,), lane)

    def unpacked(self) -> Value:
        """Unpack a uint64 lane mask to 64 booleans; see ``state.unpack``."""
        if self.dtype.itemsize != 8 or self.lanes:
            raise NotCompilable("a lane mask of another type")
        self.emit.require_all_lanes()
        return Value(self.emit, BOOL, (WAVES, LANES), self.emit.builder.bitcast(self.ir, self.emit.type(BOOL, True)))

    def packed(self) -> Value:
        """Pack 64 booleans to a uint64 lane mask; see ``state.pack``."""
        if self.dtype != BOOL or not self.lanes:
            raise NotCompilable("a lane mask of another type")
        mask = self.emit.builder.bitcast(self.ir, ir.IntType(self.emit.width))
        return (Value if self.emit.width == LANES else PartOfMask)(self.emit, np.dtype(np.uint64), (WAVES,), mask)

    def __getitem__(self, index: Any) -> Value:
        if index is Ellipsis:
            return self
        if index == 0 and isinstance(index, int):
            return Value(self.emit, self.dtype, self.shape[1:], self.ir)
        if isinstance(index, tuple) and len(index) == 2 and self.lanes:
            rows, lanes = index
            if isinstance(rows, slice) and isinstance(lanes, int):
                return Value(self.emit, self.dtype, (WAVES,), self.emit.element(self.ir, lanes))
            if isinstance(rows, slice) and isinstance(lanes, np.ndarray) and lanes.shape == (LANES,):
                return Value(self.emit, self.dtype, self.shape, self.emit.shuffle(self.ir, lanes))
            if isinstance(rows, np.ndarray) and rows.shape == (WAVES,) and np.shape(lanes) == (WAVES,):
                return Value(self.emit, self.dtype, (WAVES,), self.emit.element(self.ir, lanes))
        raise NotCompilable(f"indexing by {index!r}")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise NotCompilable("the data itself is required")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__":
            raise NotCompilable(f"{ufunc.__name__}.{method}")
        return self.emit.ufunc(self.emit, ufunc, inputs, **options)

    def __array_function__(self, function: Any, _: Any, arguments: Any, options: Any) -> Any:
        if function not in self.emit.functions:
            raise NotCompilable(f"np.{function.__name__}")
        return self.emit.functions[function](self.emit, *arguments, **options)

    def fused_multiply_add(self, a: Any, b: Any, c: Any) -> Value:
        """Return a * b + c with one rounding; see ``fused.fma``."""
        dtype = np.result_type(*(x.dtype for x in (a, b, c)))
        lanes, shape = spread(a, b, c)
        values = [self.emit.lift(x, dtype, lanes) for x in (a, b, c)]
        return Value(self.emit, dtype, shape, self.emit.intrinsic("fma", *values))


class PartOfMask(Value):
    """The bits of a lane mask that belong to this part of the wavefront; can only be written to a register."""

    @property
    def ir(self) -> Any:
        raise NotCompilable("a lane mask of all lanes")

    @property
    def part(self) -> Any:
        return self._value


class Emitter:
    """Target of emitted code, and the small vocabulary that lowerings share.

    ``ufunc(emitter, ufunc, inputs, **options)`` and ``functions`` (by NumPy function) lower the calls of NumPy
    functions. ``width``: elements of a vector, 64 or a part of them.
    """

    def __init__(
        self,
        module: ir.Module,
        builder: ir.IRBuilder,
        ufunc: Callable[..., Any],
        functions: Mapping[Any, Callable[..., Any]],
        width: int = LANES,
    ) -> None:
        self.width = width
        self.ufunc = ufunc
        self.functions = functions
        self.module = module
        self.builder = builder
        # All code of a function is in one basic block, so that a constant can be reused until its end.
        self._constants: dict[tuple[str, bool, bytes], Any] = {}
        self._words: dict[tuple[int, int], Any] = {}

    def type(self, dtype: np.dtype, lanes: bool) -> ir.Type:
        """Return the LLVM type of an element, or of 64 of them."""
        element = _FLOATS.get(dtype) or ir.IntType(1 if dtype == BOOL else 8 * dtype.itemsize)
        return ir.VectorType(element, self.width) if lanes else element

    def like(self, value: Any, dtype: np.dtype) -> ir.Type:
        """Return the LLVM type of ``dtype`` with as many elements as ``value``."""
        return self.type(dtype, isinstance(value.type, ir.VectorType))

    def lift(self, x: Any, dtype: np.dtype, lanes: bool) -> Any:
        """Return the LLVM value of an array, symbolic or not, as ``dtype``, a vector if ``lanes``."""
        if isinstance(x, Value):
            value = self.cast(x.ir, x.dtype, dtype)
            return self.splat(value) if lanes and not x.lanes else value
        with np.errstate(all="ignore"):
            array = np.asarray(x).astype(dtype)
        if isinstance(x, int) and dtype.kind in "iu" and int(array) != x:
            raise NotCompilable(f"the number {x} as {dtype}")
        if array.ndim == 2 and len(array) == WAVES and (array[0] == array[1]).all():
            array = array[0]
        identity = (dtype.str, lanes, array.tobytes())
        if identity not in self._constants:
            self._constants[identity] = self._constant(array, dtype, lanes)
        return self._constants[identity]

    def _constant(self, array: np.ndarray, dtype: np.dtype, lanes: bool) -> Any:
        element = ir.IntType(1 if dtype == BOOL else 8 * dtype.itemsize)
        words = array.reshape(-1).view(f"u{dtype.itemsize}").tolist()
        if len(words) == LANES and words == words[: self.width] * (LANES // self.width):
            words = words[: self.width]
        if len(set(words)) == 1:
            value = self.bitcast(ir.Constant(element, words[0]), dtype)
            return self.splat(value) if lanes else value
        if len(words) != self.width or not lanes:
            raise NotCompilable(f"a constant of shape {array.shape}")
        return self.bitcast(ir.Constant(ir.VectorType(element, self.width), words), dtype)

    def splat(self, value: Any) -> Any:
        """Broadcast a scalar to all lanes."""
        vector = ir.VectorType(value.type, self.width)
        zeros = ir.Constant(vector, None)
        first = self.builder.insert_element(zeros, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, zeros, ir.Constant(ir.VectorType(ir.IntType(32), self.width), None))

    def require_all_lanes(self) -> None:
        """Raise ``NotCompilable`` if vectors hold only a part of the lanes."""
        if self.width != LANES:
            raise NotCompilable("an operation across lanes")

    def element(self, vector: Any, lane: Any) -> Any:
        self.require_all_lanes()
        index = ir.Constant(ir.IntType(32), lane) if isinstance(lane, int) else self.lift(lane, np.dtype("i4"), False)
        return self.builder.extract_element(vector, index)

    def shuffle(self, vector: Any, lanes: np.ndarray) -> Any:
        """Return the vector whose lane i is element ``lanes[i]``; of a part, if all parts do the same in themselves."""
        parts = np.asarray(lanes).reshape(-1, self.width) - np.arange(0, LANES, self.width)[:, None]
        if (parts != parts[0]).any() or parts[0].min() < 0 or parts[0].max() >= self.width:
            self.require_all_lanes()
        picks = ir.Constant(ir.VectorType(ir.IntType(32), self.width), parts[0].tolist())
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, None), picks)

    def word(self, value: Any, number: int) -> Any:
        """Return an integer constant of ``value``'s type."""
        if not isinstance(value.type, ir.VectorType):
            return ir.Constant(value.type, number)
        width: int = value.type.element.width
        if (width, number) not in self._words:
            self._words[width, number] = self.splat(ir.Constant(value.type.element, number))
        return self._words[width, number]

    def bits(self, value: Any, dtype: np.dtype) -> Any:
        """Return the bits of a float as an integer, and an integer unchanged."""
        return self.bitcast(value, np.dtype(f"u{dtype.itemsize}")) if dtype in _FLOATS else value

    def bitcast(self, value: Any, dtype: np.dtype) -> Any:
        return self.builder.bitcast(value, self.like(value, dtype))

    def intrinsic(self, name: str, *values: Any) -> Any:
        """Call ``llvm.NAME``, overloaded on the type of the first operand."""
        kind = values[0].type
        vector = isinstance(kind, ir.VectorType)
        element = kind.element if vector else kind
        letter = {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(element)
        suffix = (f"v{kind.count}" if vector else "") + (letter or f"i{element.width}")
        name = f"llvm.{name}.{suffix}"
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(kind, [v.type for v in values]), name)
        return self.builder.call(function, values)

    def cast(self, value: Any, of: np.dtype, to: np.dtype) -> Any:
        """Convert as NumPy's ``astype`` does."""
        b = self.builder
        if of == to:
            return value
        kind = self.like(value, to)
        if to == BOOL:
            if of in _FLOATS:
                return b.fcmp_unordered("!=", value, ir.Constant(value.type, None))
            return b.icmp_unsigned("!=", value, self.word(value, 0))
        if of in _FLOATS and to in _FLOATS:
            return self._cast_float(value, of, to)
        if of in _FLOATS:
            if of == F16:
                return self.cast(self.cast(value, F16, F32), F32, to)
            if to.kind == "u" and to.itemsize == 8:
                return b.fptoui(value, kind)
            # As the host converts: to 64 bits, of which the low ones are kept.
            return self.cast(b.fptosi(value, self.like(value, np.dtype("i8"))), np.dtype("i8"), to)
        if to in _FLOATS:
            if to == F16:
                return self.cast(self.cast(value, of, F32), F32, F16)
            return b.sitofp(value, kind) if of.kind == "i" else b.uitofp(value, kind)
        if of != BOOL and to.itemsize <= of.itemsize:
            return value if to.itemsize == of.itemsize else b.trunc(value, kind)
        return b.sext(value, kind) if of.kind == "i" else b.zext(value, kind)

    def _cast_float(self, value: Any, of: np.dtype, to: np.dtype) -> Any:
        b = self.builder
        if of == F64 and to == F16:
            return b.fptrunc(self._to_odd(value), self.like(value, F16))
        if of == F16 and to == F64:
            value = b.fpext(value, self.like(value, F32))
        convert = b.fpext if to.itemsize > of.itemsize else b.fptrunc
        return convert(value, self.like(value, to))

    def _to_odd(self, value: Any) -> Any:
        """Round a float64 to odd in float32, so that rounding it again to float16 equals one rounding."""
        b = self.builder
        near = b.fptrunc(value, self.like(value, F32))
        back = b.fpext(near, value.type)
        inexact = b.fcmp_ordered("!=", back, value)
        word = self.bits(near, F32)
        even = b.icmp_unsigned("==", b.and_(word, self.word(word, 1)), self.word(word, 0))
        beyond = b.fcmp_ordered(">", self.intrinsic("fabs", back), self.intrinsic("fabs", value))
        odd = b.select(beyond, b.sub(word, self.word(word, 1)), b.add(word, self.word(word, 1)))
        return self.bitcast(b.select(b.and_(inexact, even), odd, word), F32)


def spread(*operands: Any) -> tuple[bool, tuple[int, ...]]:
    """Return whether operands broadcast to lanes, and the shape that they broadcast to."""
    shape = np.broadcast_shapes(*(np.shape(x) if not isinstance(x, Value) else x.shape for x in operands))
    return shape[-1:] == (LANES,), shape


@lru_cache(maxsize=4096)
def resolve(ufunc: np.ufunc, types: tuple[Any, ...], dtype: np.dtype | None) -> tuple[np.dtype, ...]:
    """Return the dtypes in which NumPy's loop works: of the inputs, then of the results."""
    options: dict[str, Any] = {} if dtype is None else {"signature": (*[None] * ufunc.nin, *[dtype] * ufunc.nout)}
    resolved: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*types, *[None] * ufunc.nout), **options)
    return resolved


def type_of(x: Any) -> Any:
    """Return the dtype of an operand, or the Python type whose constants adapt to the others (NEP 50)."""
    if isinstance(x, bool):
        return BOOL
    return x.dtype if hasattr(x, "dtype") else type(x)
