"""Calls of the library whose compiled kernels have a contract: ``CALLS``.

A call is made by the rank function that also tests its results, with fixed arguments: 16-byte aligned, whole tiles, 4
wavefronts. Its name without the language, such as "all_reduce ring" for "all_reduce ring gluon", has the contract. So
has its name without the reduction, such as "all_reduce atomic" for "all_reduce atomic max".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from conformance.atomics import history
from conformance.atomics.cases import AtomicCase
from conformance.collectives import calls
from conformance.collectives.operations import COLLECTIVES, LOW_LATENCY_MEMBERS
from conformance.isa.contract import promises
from conformance.ops import products
from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.rma import transfer
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.support.forms import FORMS
from conformance.support.instances import release
from conformance.x import tiles
from conformance.x.cases import TileCase
from conformance.x.operations import TILES
from fixtures.worker import Env

ROWS, COLUMNS, WARPS = 8, 256, 4


@dataclass(frozen=True)
class Entry:
    """One call. ``run(env)`` makes it on every rank and returns the first difference of its results. ``needs``:
    capabilities of the library. ``waits``: ranks wait for each other in its kernels. ``limit``: the largest number of
    ranks, 0 if any. ``published``: the published API has it. ``always``: ISA-CONTRACT-001 makes the call, also where it
    makes another one with this contract."""

    contract: str
    run: Callable[[Env], Any]
    needs: tuple[str, ...]
    waits: bool = True
    limit: int = 0
    published: bool = True
    always: bool = False


def _neighbours(env: Env) -> tuple[tuple[int, ...], ...]:
    return tuple(((rank + 1) % env.world_size,) for rank in range(env.world_size))


def _transfer(op: str, form: str, env: Env) -> Any:
    case = TransferCase(
        dtype="fp16", n=2 * ROWS * COLUMNS, targets=_neighbours(env), spt=0, warps=WARPS, mask="none", aligned=True,
        form=form,
    )  # fmt: skip
    return transfer.run(env, case, op)


def _atomic(op: str, sem: str, scope: str, form: str, env: Env) -> Any:
    case = AtomicCase(
        op=op, dtype="int32", spt=0, targets=_neighbours(env), warps=1, sem=sem, scope=scope, form=form
    )  # fmt: skip
    return history.run(env, case)


def _collective(op: str, variant: str, protocol: str, gluon: bool, env: Env) -> Any:
    described = COLLECTIVES[op]
    case = described.case(
        dtype="fp16", m=4 * ROWS, n=COLUMNS, block_m=ROWS, block_n=COLUMNS, warps=WARPS, variant=variant,
        protocol=protocol, gluon=gluon,
    )  # fmt: skip
    return calls.run(env, case)


def _reduction(reduce: str, env: Env) -> Any:
    # The kernels of CCL-TURNS-001.
    return calls.run(env, COLLECTIVES["all_reduce"].case(dtype="int32", reduce=reduce, m=5, n=70, variant="atomic"))


def _fused(op: str, variant: str, env: Env) -> Any:
    # The kernels of FUSED-EDGES-001.
    return products.run(env, FusedCase(op, m=64, n=64, k=64, block_m=32, block_n=64, block_k=32, variant=variant))


def _tile(op: str, env: Env) -> Any:
    # A published library sets a tile's flag by Triton's release: that of the methods waits in every wavefront.
    own = promises(env.implementation)
    dtype, block_m, block_n, warps = TILES[op].aligned  # the kernels of X-MOVE-001 and X-SUM-001
    case = TileCase(op, dtype, *(block_m, block_n) * 2, warps, methods=own, aligned=True)
    return tiles.run(env, case)


def _barrier(env: Env) -> None:
    iris = env.under_test.iris(heap_size=1 << 16)
    env.settle()
    with env.acting():
        iris.device_barrier()
    env.settle()
    release(iris)


def _message(gluon: bool, env: Env) -> None:
    me, ranks = env.rank, env.world_size
    env.image.reset()
    regions = [env.image.claim(f"message {k}", 1024 + 8192 * k, ROWS * COLUMNS, torch.float16) for k in range(2)]
    source, target = (env.image.tensor(region).view(ROWS, COLUMNS) for region in regions)
    config = env.under_test.config(
        block_size_m=ROWS, block_size_n=COLUMNS, comm_sms=2, num_warps=env.warps(WARPS), use_gluon=gluon,
        threads_per_warp=env.device.lanes,
    )  # fmt: skip
    env.settle()
    with env.acting():
        work = env.iris.ccl.sendrecv(
            source, target, (me + 1) % ranks, (me - 1) % ranks, tag=0, group=None, async_op=True, config=config
        )
        if work is not None:
            work.wait()
    env.settle()


def _entries() -> Iterator[tuple[str, Entry]]:
    capability = {"gluon": "IrisDeviceCtx.{}", "context": "DeviceContext.{}", "function": "{}"}
    for form in FORMS:
        for op in TRANSFERS:
            yield f"{op} {form}", Entry(op, partial(_transfer, op, form), (capability[form].format(op),), waits=False)
    for name, (op, sem, scope) in ATOMIC_CALLS.items():
        for form in FORMS:
            needs = (capability[form].format(f"atomic_{op}"),)
            yield f"{name} {form}", Entry(name, partial(_atomic, op, sem, scope, form), needs, waits=False)
    for op, described in COLLECTIVES.items():
        variants = [variant.name for variant in described.variants]
        if op == "all_gather":
            variants.append("partitioned")
        for variant in variants:
            for language in ("triton", "gluon"):
                if variant == "partitioned" and language == "gluon":
                    continue
                name = f"{op} {variant}".strip()
                run = partial(_collective, op, variant, "", language == "gluon")
                published = variant != "two_shot_push" and (language == "triton" or described.published_gluon)
                yield f"{name} {language}", Entry(name, run, (f"ccl.{op}",), published=published)
        for fast in described.variants:
            if fast.low_latency:
                for language in ("triton", "gluon"):
                    run = partial(_collective, op, fast.name, "ll", language == "gluon")
                    both = (f"ccl.{op}", "ccl.Config(protocol)")
                    yield f"{op} ll {language}", Entry(f"{op} ll", run, both, limit=LOW_LATENCY_MEMBERS)
    # The atomics besides the addition are other instructions on the memory of other ranks, for AMD GPUs at system scope
    # loops around a compare-and-swap. Other variants combine values in registers.
    for reduce in ("max", "min", "band", "bor", "bxor"):
        entry = Entry("all_reduce atomic", partial(_reduction, reduce), ("ccl.all_reduce",), always=True)
        yield f"all_reduce atomic {reduce}", entry
    for op, product in PRODUCTS.items():
        for variant in product.variants:
            name = f"{op} {variant}" if len(product.variants) > 1 else op
            yield name, Entry(name, partial(_fused, op, variant), (f"ops.{op}",))
    for op, tile in TILES.items():
        yield f"tile {op}", Entry(f"tile {op}", partial(_tile, op), (f"x.{tile.function}",))
    for language in ("triton", "gluon"):
        yield f"sendrecv {language}", Entry("sendrecv", partial(_message, language == "gluon"), ("ccl.sendrecv",))
    yield "device_barrier", Entry("device_barrier", _barrier, ("Iris.device_barrier",))


ATOMIC_CALLS = {
    f"atomic_{op} {sem} {scope}": (op, sem, scope)
    for op, sem, scope in (
        ("add", "relaxed", "sys"), ("add", "release", "sys"), ("add", "acquire", "sys"), ("add", "acq_rel", "gpu"),
        ("xchg", "release", "sys"), ("xchg", "acq_rel", "sys"), ("cas", "acquire", "sys"), ("sub", "acq_rel", "sys"),
        ("and", "acq_rel", "sys"), ("or", "release", "gpu"), ("xor", "acquire", "gpu"), ("min", "acq_rel", "sys"),
        ("max", "relaxed", "gpu"),
    )
}  # fmt: skip
"""Contract -> op, order and scope of a scalar atomic."""

CALLS = dict(_entries())
"""Name of a call, with its language or form, such as "put context" -> how it is made."""
