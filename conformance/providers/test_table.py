"""The table of peer bases: its form, its entries, and the alignment of heaps; sizes, ends and further heaps."""

import torch

from conformance.providers import kernels
from conformance.providers.cases import SizeCase
from conformance.providers.heaps import SIZE, heap, with_form
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

ALIGNMENT = 256
"""Alignment that hipMalloc and cudaMalloc guarantee, and that compiled code relies on for wide accesses."""

MIB, PAGE = 1 << 20, 4096
SIZES = (1, PAGE - 1, PAGE, PAGE + 1, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1)


@with_form
def table(env, case):
    """Check the entries of a heap's table, which has a correct form: ``with_form`` reports a malformed one."""
    findings = Findings(env.rank)
    with heap(env, case.size) as one:
        findings.equal(
            f"bases[{env.rank}], this rank's entry: its own base", hex(one.addresses[env.rank]), hex(one.base)
        )
        for owner, address in enumerate(one.addresses):
            for other, other_address in enumerate(one.addresses[:owner]):
                if abs(address - other_address) < case.size:
                    findings.note(
                        f"bytes between bases[{other}] = {other_address:#x} and bases[{owner}] = {address:#x}",
                        abs(address - other_address),
                        f"at least {case.size}",
                    )
        findings.equal("the table after use", one.bases.tolist(), one.addresses)
    return findings.first


@with_form
def alignment(env, case):
    findings = Findings(env.rank)
    with heap(env, case.size) as one:
        for owner, address in enumerate(one.addresses):
            findings.equal(
                f"bases[{owner}] = {address:#x} modulo {ALIGNMENT}: bases are aligned to {ALIGNMENT} bytes",
                address % ALIGNMENT, 0,
            )  # fmt: skip
    return findings.first


@with_form
def ends(env, case):
    """Check the ends of the heap: each rank stores to its right neighbour's, and loads another's."""
    findings = Findings(env.rank)
    with heap(env, case.size) as one:
        _check_ends(env, findings, one, "the heap", 1)
    return findings.first


@with_form
def second(env, case):
    """A second heap leaves the first one as it was, and has a table of its own."""
    findings = Findings(env.rank)
    with heap(env, case.size) as first:
        before = list(first.addresses)
        _check_ends(env, findings, first, "the first heap", 1)
        kept = first.memory[:8].tolist()
        with heap(env, 2 * case.size) as other:
            findings.equal(f"the second heap's bases[{env.rank}]: its own base", other.addresses[env.rank], other.base)
            _check_ends(env, findings, other, "the second heap", 3)
            findings.equal("the first heap's table after a second heap was made", first.bases.tolist(), before)
            findings.equal(
                "first bytes of the first heap after the second heap was written", first.memory[:8].tolist(), kept
            )
            _check_ends(env, findings, first, "the first heap after a second heap was made", 5)
        _check_ends(env, findings, first, "the first heap after the second one", 7)
    return findings.first


def _marks(env, turn):
    """Return the bytes that this rank stores first and last: they differ from rank to rank and turn to turn."""
    return 16 * env.rank + turn, 16 * env.rank + turn + 1


def _check_ends(env, findings, one, name, turn):
    ranks, size = env.world_size, one.size
    right, left = (env.rank + 1) % ranks, (env.rank - 1) % ranks
    width = min(8, size // 2 or 1)
    marks = _marks(env, turn)
    env.settle()
    with env.acting():
        kernels.store(env, one.bases, right, 0, torch.full((width,), marks[0], dtype=torch.uint8))
        if size >= 2 * width:
            kernels.store(env, one.bases, right, size - width, torch.full((width,), marks[1], dtype=torch.uint8))
    env.settle()
    stored = gathered(torch.tensor([marks], dtype=torch.uint8))
    if env.fault is None:
        here = one.memory.cpu()
        findings.equal(
            f"first {width} bytes of {name}, stored by rank {left}",
            here[:width].tolist(),
            [int(stored[left][0])] * width,
        )
        if size >= 2 * width:
            findings.equal(
                f"last {width} of the {size} bytes of {name}, stored by rank {left}",
                here[-width:].tolist(), [int(stored[left][1])] * width,
            )  # fmt: skip
    with env.acting():
        further = (env.rank + 2) % ranks
        loaded = kernels.load(env, one.bases, further, 0, width, torch.uint8).tolist()
        writer = (further - 1) % ranks
        findings.equal(
            f"first {width} bytes of {name} of rank {further}, loaded", loaded, [int(stored[writer][0])] * width
        )
    env.settle()


@requirement("PROVIDER-TABLE-001", cases=lambda ranks: [SizeCase(SIZE)])
def test_table(check, case):
    check(table, case)


@requirement("PROVIDER-ALIGN-001", cases=lambda ranks: [SizeCase(PAGE), SizeCase(MIB + 1)])
def test_alignment(check, case):
    check(alignment, case)


@requirement("PROVIDER-SIZE-001", cases=lambda ranks: [SizeCase(size) for size in SIZES])
def test_sizes(check, case):
    check(ends, case)


@requirement("PROVIDER-SECOND-001", cases=lambda ranks: [SizeCase(MIB)])
def test_second_heap(check, case):
    check(second, case)
