"""Kernels for the weak mode: two ranks that pass data to each other, as Iris programs do."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tests.emulator.kernels import moved


@gluon.jit
def signal(flag, delta):
    gl.atomic_xchg(moved(flag, delta), 1, sem="release", scope="sys")


@gluon.jit
def wait(flag, delta):
    while gl.atomic_cas(moved(flag, delta), 1, 0, sem="acquire", scope="sys") != 1:
        pass


@gluon.jit
def question(data, there, flag, here, ack, out, delta, BLOCK: gl.constexpr, WARPS: gl.constexpr):
    """Put ``data`` into the other rank's inbox, raise its flag, wait for the answer, and copy that to ``out``."""
    offsets = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [64], [WARPS], [0]))
    gl.store(moved(there + offsets, delta), gl.load(data + offsets))
    signal(flag, delta)
    wait(ack, delta)
    gl.store(out + offsets, gl.load(moved(here + offsets, delta)))


@gluon.jit
def answer(here, flag, there, ack, delta, BLOCK: gl.constexpr, WARPS: gl.constexpr):
    """Wait for the question and answer it with each element plus 1."""
    offsets = gl.arange(0, BLOCK, layout=gl.BlockedLayout([1], [64], [WARPS], [0]))
    wait(flag, delta)
    gl.store(moved(there + offsets, delta), gl.load(moved(here + offsets, delta)) + 1)
    signal(ack, delta)
