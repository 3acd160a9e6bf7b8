"""Kernels whose addresses take a way that a reader of their code has to follow. Compiled, never run.

Every kernel stores to ``target`` through ``table``, in which ``me`` and ``there`` are ranks, and stores locally to
``out``.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

REFUSED_FOR_AMD = ("by_select",) if triton.__version__.startswith(("3.6.", "3.7.", "3.8.")) else ()
"""Kernels that Triton before 3.9 cannot compile for AMD GPUs: a choice between a pointer argument and a moved one."""


@triton.jit
def moved(pointer, table, me, there):
    delta = tl.load(table + there) - tl.load(table + me)
    return (pointer.to(tl.int64) + delta).to(pointer.dtype, bitcast=True)


@triton.jit
def by_select(table, target, out, n, me, there):
    lanes = tl.arange(0, 256)
    near, far = target + lanes, moved(target + lanes, table, me, there)
    tl.store(tl.where(lanes < n, far, near), lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_scalar_select(table, target, out, n, me, there):
    lanes = tl.arange(0, 256)
    address = target.to(tl.int64)
    if n > 7:
        address += tl.load(table + there) - tl.load(table + me)
    tl.store((address + lanes * 4).to(tl.pointer_type(tl.int32)), lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_loop(table, target, out, n, me, there):
    lanes = tl.arange(0, 256)
    pointer = moved(target + lanes, table, me, there)
    own = out + lanes
    for step in range(n):
        tl.store(pointer, lanes + step)
        tl.store(own, lanes + step)
        pointer += 256
        own += 256


@triton.jit
def by_rotation(table, target, out, n, me, there):
    """Two pointers change places at each step, so both are remote from the second step on."""
    lanes = tl.arange(0, 256)
    one = target.to(tl.int64)
    other = one + tl.load(table + there) - tl.load(table + me)
    for step in range(n):
        tl.store((one + lanes * 4).to(tl.pointer_type(tl.int32)), lanes + step)
        one, other = other, one
    tl.store(out + lanes, lanes)


@triton.jit(noinline=True)
def base_of(table, rank):
    return tl.load(table + rank)


@triton.jit(noinline=True)
def write(pointer, value):
    tl.store(pointer, value)


@triton.jit
def by_function(table, target, out, n, me, there):
    """One function loads both bases, another one stores; the local store is a function's too."""
    delta = base_of(table, there) - base_of(table, me)
    write((target.to(tl.int64) + delta).to(target.dtype, bitcast=True), n)
    tl.store(out, n)


@triton.jit
def by_limits(table, target, out, n, me, there):
    """Integer minimum and maximum, alignment, multiplication by constants."""
    lanes = tl.arange(0, 256)
    lowest = tl.minimum(tl.load(table + there), tl.load(table + there + 1))
    aligned = tl.maximum(lowest, tl.load(table + me)) & -16
    pages = aligned // 16
    tl.store((pages * 16).to(tl.pointer_type(tl.int32)) + lanes, lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_reduction(table, target, out, n, me, there):
    """The greatest of many bases: lanes exchange them."""
    lanes = tl.arange(0, 256)
    greatest = tl.max(tl.load(table + lanes), axis=0)
    tl.store(greatest.to(tl.pointer_type(tl.int32)) + lanes, lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_two_tables(table, target, out, n, me, there):
    """``table`` holds the address of the table."""
    lanes = tl.arange(0, 256)
    inner = tl.load(table + 3).to(tl.pointer_type(tl.int64))
    tl.store(moved(target + lanes, inner, me, there), lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_tuple(table, target, out, n, me, there):
    lanes = tl.arange(0, 256)
    bases = (tl.load(table), tl.load(table + 1), tl.load(table + 2))
    for step in tl.static_range(3):
        tl.store(bases[step].to(tl.pointer_type(tl.int32)) + lanes, lanes)
    tl.store(out + lanes, lanes)


@aggregate
class Context:
    bases: tl.tensor
    own: tl.tensor

    @triton.constexpr_function
    def __init__(self, bases, own):
        self.bases = bases
        self.own = own

    @triton.jit
    def moved(self, pointer, there):
        delta = tl.load(self.bases + there) - self.own
        return (pointer.to(tl.int64) + delta).to(pointer.dtype, bitcast=True)


@triton.jit
def by_context(table, target, out, n, me, there):
    """The context begins with the rank, and loads its own base at the start of the kernel."""
    lanes = tl.arange(0, 256)
    rank = tl.load(table)
    ctx = Context(table + 2, tl.load(table + 2 + rank))
    for step in range(n):
        tl.store(ctx.moved(target + lanes + step * 256, there), lanes)
        tl.store(out + rank * n + lanes, lanes)


@triton.jit
def by_boxes(table, target, out, n, me, there):
    """The table has the addresses of boxes in every rank's memory: an address is put in one, and taken from one."""
    lanes = tl.arange(0, 256)
    box = tl.load(table + there).to(tl.pointer_type(tl.int64))
    tl.store(box, target.to(tl.int64))
    given = tl.load(tl.load(table + me).to(tl.pointer_type(tl.int64)) + 1)
    tl.store(given.to(tl.pointer_type(tl.int32)) + lanes, lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_assertion(table, target, out, n, me, there):
    """A text is written to the host's memory if the assertion fails."""
    lanes = tl.arange(0, 256)
    tl.device_assert(n > me, "n is too small")
    tl.store(moved(target + lanes, table, me, there), lanes)
    tl.store(out + lanes, lanes)


@triton.jit
def by_rank(table, target, out, n, me, there):
    """The table begins with the rank, which selects the columns: an index from the memory that holds the bases."""
    lanes = tl.arange(0, 256)
    rank = tl.load(table)
    tl.store(moved(target + rank * n + lanes, table + 1, rank, there), lanes)
    tl.store(out + rank * n + lanes, lanes)


@triton.jit
def by_turns(table, target, out, n, me, there):
    """The rank's lower half, by a remainder, also in bytes."""
    lanes = tl.arange(0, 256)
    rank = tl.load(table).to(tl.int32)
    for step in tl.static_range(3):
        pointer = (target + rank * n + lanes).to(tl.pointer_type(tl.int8)) + rank
        tl.store(moved(pointer, table + 1, rank, (rank + step) % 3), lanes.to(tl.int8))
    tl.store(out.to(tl.pointer_type(tl.int8)) + (rank + there) % 3 + lanes, lanes.to(tl.int8))


@triton.jit
def by_bytes(table, target, out, n, me, there):
    """The rank is an offset in bytes, in 64 bits."""
    lanes = tl.arange(0, 256)
    rank = tl.load(table)
    tl.store(moved(target.to(tl.pointer_type(tl.int8)) + rank + lanes, table + 1, rank, there), lanes.to(tl.int8))
    tl.store(out.to(tl.pointer_type(tl.int8)) + rank + lanes, lanes.to(tl.int8))


@triton.jit
def by_memory(table, target, out, n, me, there):
    """Whole tiles of addresses change their layout by way of shared memory."""
    rows, columns = tl.arange(0, 64), tl.arange(0, 64)
    base = tl.load(table + rows % 8)
    pointers = (base[:, None] + columns[None, :] * 4).to(tl.pointer_type(tl.int32))
    tl.store(tl.trans(pointers), tl.trans(pointers).to(tl.int64).to(tl.int32))
    tl.store(out + rows, rows)


@gluon.jit
def by_shared_memory(table, target, out, n, me, there, LANES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    lanes = gl.arange(0, 256, layout=layout)
    delta = gl.load(table + there) - gl.load(table + me)
    addresses = (target + lanes).to(gl.int64) + delta
    kept = gl.allocate_shared_memory(gl.int64, [256], shared, addresses)
    gl.store(kept.load(layout).to(gl.pointer_type(gl.int32)), lanes)
    gl.store(out + lanes, lanes)


@gluon.jit
def by_gluon_loop(table, target, out, n, me, there, LANES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [LANES], [4], [0])
    lanes = gl.arange(0, 1024, layout=layout)
    own = gl.load(table + me)
    for rank in range(n):
        pointer = target + lanes
        if rank != me:
            pointer = (pointer.to(gl.int64) + (gl.load(table + rank) - own)).to(target.dtype, bitcast=True)
        gl.store(pointer, lanes)
    gl.store(out + lanes, lanes)


@gluon.jit
def _send(pointer, steps, WIDTH: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([WIDTH], [32], [1], [0])
    lanes = gl.arange(0, 32 * WIDTH, layout=layout)
    gl.store(pointer + steps * 4 + lanes, lanes)


@gluon.jit
def _nothing(pointer):
    pass


@gluon.jit
def by_roles(table, target, out, n, me, there, LANES: gl.constexpr, WIDTH: gl.constexpr):
    """Warps specialise: one sends by a distance that all warps loaded, one stores locally, the others do nothing."""
    steps = (gl.load(table + there) - gl.load(table + me)) >> 4
    gl.warp_specialize([(_nothing, (out,)), (_send, (target, steps, WIDTH)), (_send, (out, 0, 1))], [1, 1], [24, 24])


@triton.jit
def by_spills(table, target, out, n, me, there, COUNT: tl.constexpr):
    """More addresses at once than registers can hold."""
    lanes = tl.arange(0, 256)
    pointers, owns = (), ()
    for step in tl.static_range(COUNT):
        row = tl.load(out + lanes + step * n)
        pointers += (moved(target + row, table, me, there),)
        owns += (out + tl.load(out + lanes * 2 + step * n).to(tl.int64),)
    for turn in range(n):
        tl.debug_barrier()
        for step in tl.static_range(COUNT):
            tl.store(pointers[step], turn + step + lanes)
            tl.store(owns[step], turn - step + lanes)


# -- local kernels that look remote ------------------------------------------------------------------------------------


@triton.jit
def by_offsets(table, target, out, n, me, there):
    """Indices are loaded from an int64 tensor, also byte by byte."""
    lanes = tl.arange(0, 256)
    index = tl.load(table + lanes)
    tl.store(target + index, lanes)
    tl.store(out.to(tl.pointer_type(tl.int8)) + index, lanes.to(tl.int8))


@triton.jit
def by_loaded_offset(table, target, out, n, me, there):
    """A base from one table, and an offset in bytes from another one."""
    base, offset = tl.load(table + there), tl.load(out.to(tl.pointer_type(tl.int64)) + me)
    tl.store((base + offset).to(tl.pointer_type(tl.int8)), n.to(tl.int8))
    tl.store(target, n)


@triton.jit
def by_range(table, target, out, n, me, there):
    """The difference of two indices in bytes, as of rows of different lengths."""
    length = tl.load(table + there) - tl.load(table + me)
    tl.store(target.to(tl.pointer_type(tl.int8)) + length, n.to(tl.int8))
    tl.store(out, n)


@triton.jit
def by_local_table(table, target, out, n, me, there):
    """``out`` holds the addresses of local matrices, as for a grouped product; ``table`` the heap bases."""
    lanes = tl.arange(0, 256)
    matrix = tl.load(out.to(tl.pointer_type(tl.int64)) + me).to(tl.pointer_type(tl.int32))
    tl.store(moved(target + lanes, table, me, there), tl.load(matrix + lanes))
    tl.store(matrix + lanes, lanes)
