"""The order of atomics in amdgcn listings: every fence, wait and scope bit that is taken away is reported."""

import functools
import re

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from conformance.isa.targets import excused_order_faults, order_faults
from harness.isa import fingerprint, protocol
from mutants.binary.operators import mutants_in
from tests.isa.kernels import waited


@gluon.jit
def scalar(target, out, count, SEM: gl.constexpr, SCOPE: gl.constexpr, PER: gl.constexpr):
    gl.store(out, gl.atomic_add(target, 1, sem=SEM, scope=SCOPE))


@gluon.jit
def tile(target, out, count, SEM: gl.constexpr, SCOPE: gl.constexpr, PER: gl.constexpr):
    offsets = gl.arange(0, 256 * PER, layout=gl.BlockedLayout([PER], [64], [4], [0]))
    mask = offsets < count
    old = gl.atomic_add(target + offsets, gl.load(out + offsets), mask=mask, sem=SEM, scope=SCOPE)
    gl.store(out + offsets, old, mask=mask)


@gluon.jit
def loop(target, out, count, SEM: gl.constexpr, SCOPE: gl.constexpr, PER: gl.constexpr):
    """At system scope LLVM compiles atomic_xor as a loop around a compare-and-swap."""
    offsets = gl.arange(0, 256 * PER, layout=gl.BlockedLayout([PER], [64], [4], [0]))
    old = gl.atomic_xor(target + offsets, offsets, mask=offsets < count, sem=SEM, scope=SCOPE)
    gl.store(out + offsets, old, mask=offsets < count)


KERNELS = {
    "scalar": (scalar, "i32", 1), "tile": (tile, "i32", 1), "two elements": (tile, "i32", 2), "loop": (loop, "i32", 1),
    "two loops": (loop, "i32", 2), "packed": (tile, "fp16", 1),
}  # fmt: skip
ORDERS = [(sem, scope) for sem in ("relaxed", "acquire", "release", "acq_rel") for scope in ("sys", "gpu", "cta")]


@functools.cache
def listing(kernel: str, sem: str = "acq_rel", scope: str = "sys") -> str:
    function, dtype, per = KERNELS[kernel]
    constants = {"SEM": sem, "SCOPE": scope, "PER": per}
    signature = {"target": f"*{dtype}", "out": f"*{dtype}", "count": "i32", **dict.fromkeys(constants, "constexpr")}
    places = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = GluonASTSource(function, signature, places, {})
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4})
    return waited(str(compiled.asm["amdgcn"]))


def faults(text: str, sem: str = "acq_rel", scope: str = "sys") -> list[str]:
    return [f"{part}: {seen}" for part, seen, _ in order_faults(fingerprint(text), text, sem, scope)]


@pytest.mark.long
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("sem", "scope"), ORDERS)
def test_the_order_that_triton_compiled_has_no_fault(kernel, sem, scope):
    assert faults(listing(kernel, sem, scope), sem, scope) == []


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_weaker_order_than_requested_is_reported(kernel):
    for sem, scope in ORDERS:
        weaker = sem != "acq_rel" or scope != "sys"
        assert bool(faults(listing(kernel, sem, scope))) == weaker, (sem, scope)


def changed(kernel: str) -> list[tuple[str, str, str]]:
    """Return each change of a fence, of a wait for or before one, or of a scope bit: its name, line and listing."""
    text, changes = listing(kernel), []
    for mutant in mutants_in(KERNELS[kernel][0].__name__, text):
        old = mutant.old
        fence = mutant.operator == "fence-dropped" or (mutant.operator.startswith("scope") and "buffer_" in old[:7])
        bit = mutant.operator == "scope-sc1" and "_atomic_" in old
        if fence or bit or (mutant.operator == "wait-dropped" and _is_of_a_fence(text, mutant.line)):
            changes.append((mutant.operator, old, mutant.applied(text)))
    return changes


def _is_of_a_fence(text: str, line: int) -> bool:
    """Return whether the wait at a line of the listing is next to a fence: after a write-back or before an
    invalidation."""
    code = [(number, one.strip()) for number, one in enumerate(text.splitlines(), 1)]
    code = [(number, one) for number, one in code if re.match(r"[a-z][a-z0-9]*_", one)]
    at = [number for number, _ in code].index(line)
    before, after = code[at - 1][1], code[at + 1][1]
    return "vmcnt(0)" in code[at][1] and (before.startswith("buffer_wbl2") or after.startswith("buffer_inv"))


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != "packed"])
def test_every_change_of_a_fence_a_wait_or_a_scope_is_reported(kernel):
    changes = changed(kernel)
    assert {"fence-dropped", "wait-dropped", "scope-sc0", "scope-sc1"} == {operator for operator, _, _ in changes}
    assert [(operator, old) for operator, old, text in changes if not faults(text)] == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"buffer_wbl2 sc0 sc1", "s_nop 0", "missing buffer_wbl2 sc0 sc1 before 'global_atomic_add"),
        (r"buffer_wbl2 sc0 sc1", "buffer_wbl2 sc1", "missing buffer_wbl2 sc0 sc1 before 'global_atomic_add"),
        (r"(buffer_wbl2 .*\n)\s*s_waitcnt vmcnt\(0\)", r"\1\ts_nop 0", "s_waitcnt vmcnt(0) after the buffer_wbl2"),
        (r"buffer_inv sc0 sc1", "s_nop 0", "missing buffer_inv sc0 sc1 after 'global_atomic_add"),
        (r"s_waitcnt vmcnt\(0\)(\n\s*buffer_inv)", r"s_nop 0\1", "missing s_waitcnt vmcnt(0) between its invalidation"),
        (r"(global_atomic_add .*) sc1", r"\1", "sc1 on the atomic (amdgcn): [False]"),
    ],
)  # fmt: skip
def test_a_report_names_the_instruction_and_what_it_lacks(old, new, words):
    for kernel in ("scalar", "tile"):
        text, count = re.subn(old, new, listing(kernel))
        assert count == 1 and any(words in line for line in faults(text)), (kernel, faults(text))


def test_each_of_several_atomics_needs_its_own_fences():
    """An addition of fp16 has three loops at system scope: two for single halves of 4 bytes, one for both."""
    text = listing("packed")
    first = text.index("buffer_inv")
    without = f"{text[:first]}s_nop 0 ;{text[first:]}"
    (line, *_) = faults(without)
    assert "missing buffer_inv sc0 sc1 after 'global_atomic_cmpswap" in line
    last = text.rindex("buffer_wbl2")
    without = f"{text[:last]}s_nop 0 ;{text[last:]}"
    assert "missing buffer_wbl2 sc0 sc1 before 'global_atomic_cmpswap" in faults(without)[0]


def test_an_order_that_was_not_requested_is_reported():
    assert faults(listing("tile"), "relaxed", "sys") and faults(listing("tile"), "acq_rel", "gpu")


def test_a_release_of_the_first_element_and_an_acquire_of_the_last_one_are_accepted_together_only():
    program = protocol.read(listing("two elements"), located=False)
    assert protocol.unordered(program, "sys", releases=True, acquires=True) == []
    (late,) = protocol.unordered(program, "sys", releases=True, acquires=False)
    (early,) = protocol.unordered(program, "sys", releases=False, acquires=True)
    assert (late.lack, early.lack) == ("write-back", "invalidation") and early.atomic.line < late.atomic.line


@pytest.mark.parametrize("kernel", ["scalar", "two elements", "two loops"])
@pytest.mark.parametrize(
    ("dropped", "words"),
    [("", ""), ("buffer_wbl2 sc1", "missing buffer_wbl2"), ("buffer_inv sc1", "missing buffer_inv")],
)
def test_a_write_back_that_the_compiler_does_not_wait_for_excuses_nothing_else(kernel, dropped, words):
    """Such code needs a Triton before 3.8; here the wait is taken away."""
    text, count = re.subn(r"(buffer_wbl2 .*\n)\s*s_waitcnt vmcnt\(0\)", r"\1\ts_nop 0", listing(kernel, scope="gpu"))
    text = text.replace(dropped, "s_nop 0") if dropped else text

    def lines(does_not_wait: bool) -> list[str]:
        wrong = excused_order_faults(
            fingerprint(text), text, "add", None, None,
            ignores_cas=lambda: False, does_not_wait=lambda: does_not_wait,
        )  # fmt: skip
        return [seen for _, seen, _ in wrong]

    assert count == 1 and lines(does_not_wait=False)
    assert bool(lines(does_not_wait=True)) == bool(words)
    assert all(words in line for line in lines(does_not_wait=True)[:1])
