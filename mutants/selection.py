"""The tests that each mutant is run against, the nearest first.

A stage is one run of pytest; a mutant that survives one goes on to the next. First come the tests with few cases, the
level ``ci``, then the same tests with those of the level ``gate``. The last rule that is tried matches every file of
the library.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from mutants.generated.harness import TESTS
from mutants.mutant import HARNESS, Mutant

LEVELS = FIRST, SECOND = "ci", "gate"
"""Levels of the tests that a mutant of the library is run against, one after the other."""

GATE_RANKS = 4
"""Least number of ranks of the second level of a mutant without tests of its own, as many as the gate has: with two
members, the next one is also the one before, a lock has one user at a time, and a sum is rounded once."""


@dataclass(frozen=True)
class Stage:
    """One run: ``targets`` relative to the project's folder, ``chosen`` for -k, ``ranks`` for --ranks, ``level`` for
    --level. ``optional``: if a target no longer exists, the stage is left out."""

    targets: tuple[str, ...]
    chosen: str = ""
    ranks: int = 2
    level: str = FIRST
    optional: bool = False


PLAIN = Stage(("mutants/plain",))
WHOLE = Stage(("conformance",))
RMA_OPS, ATOMIC_OPS = r"(load|store|get|put|copy)", r"atomic_\w+"


def _stage(target: str, chosen: str = "", ranks: int = 2) -> Stage:
    return Stage(tuple(f"conformance/{word}" for word in target.split()), chosen, ranks)


_MOVING = _stage("collectives", "test_all_gather or test_all_to_all or test_broadcast or test_reduce_scatter")
_REDUCING = _stage("collectives", "test_all_reduce or test_reduce or accumulating or same_bits")
_CODE = _stage("isa", "contract")
_TRACING = _stage("tracing")
_ORDER, _GROUPS, _DEBUG = (
    _stage("isa ordering"),
    _stage("collectives host", "groups or overlapping", 3),
    _stage("negative", "debug"),
)

_BY_OPERATOR: tuple[tuple[str, str, Stage], ...] = (
    (r"dtype-int32", r"kernels/.*", _stage("collectives ops", "far")),
    (r"dtype-int32", r"device/triton/tile_collectives\.py", _stage("x", "far")),
    # A load beyond a tensor shows where the heap holds nothing else that a kernel may access.
    (r"mask-dropped", r"kernels/(move|reductions|all_reduce\w*)\.py", _stage("collectives", "ragged")),
    (r"wait-states", r"device/.*", _CODE),
    # Three members, since two round a sum of narrow floats once in any case.
    (r"dtype-narrow", r"kernels/.*", _stage("collectives", "narrow", 3)),
)
"""Pattern of the operator, pattern of the file, the stage before those of the file: what nothing else can show."""

_RULES: tuple[tuple[str, str, tuple[Stage, ...]], ...] = (
    (r"device/(gluon|triton)/.*", "check", (_DEBUG,)),
    (r"device/targets/.*", "read_realtime|get_cu_id|get_xcc_id", (_TRACING, _stage("device"))),
    (r"device/targets/.*", "_awaiting|_outputs|_operands|await_words|send_words",
     (_stage("collectives", "protocol or repeat"), _stage("negative host"), _CODE)),
    (r"device/gluon/context\.py", RMA_OPS,
     (_stage("rma", "test_{op} and not _by_"), _stage("rma isa", "not _by_"), _DEBUG)),
    (r"device/gluon/context\.py", ATOMIC_OPS,
     (_stage("atomics isa", "(test_{op} or test_order) and not _by_"), _DEBUG)),
    (r"device/triton/(ops|context)\.py", RMA_OPS,
     (_stage("rma", "test_{op}_by"), _stage("rma isa", "_by_"), _DEBUG)),
    (r"device/triton/(ops|context)\.py", ATOMIC_OPS,
     (_stage("atomics isa", "test_{op}_by or test_order_by"), _DEBUG)),
    (r"device/gluon/context\.py", "initialize",
     (_stage("rma", "test_put or test_load"), _TRACING, _stage("atomics isa"))),
    (r"device/triton/context\.py", "initialize", (_stage("rma x", "test_put_by or tiles"), _TRACING, _MOVING)),
    (r"device/gluon/(context|address)\.py", "", (_stage("rma", "test_put or test_load"), _stage("rma atomics isa"))),
    (r"device/triton/address\.py", "", (_stage("rma isa", "test_put_by or test_load_by or test_width_by"),)),
    (r"device/triton/(tiles|tile_collectives)\.py|x/", "", (_stage("x"), _CODE, _stage("negative", "debug and kind"))),
    (r"(device|host)/.*trac(ing|e).*", "", (_TRACING, _stage("host device"))),
    (r"device/debug\.py", "", (_stage("negative"),)),
    (r"device/cache_key\.py", "", (_stage("rma", "test_put or test_load"), _stage("device isa"))),
    (r"device/mailboxes\.py|kernels/messages\.py|ccl/send_recv\.py", "",
     (_stage("collectives", "send_recv or (far and sendrecv)"), _CODE)),
    (r"device/locks\.py|kernels/all_reduce\.py", "", (_stage("collectives", "accumulating"), _REDUCING, _ORDER)),
    (r"kernels/(all_reduce_push|reductions)\.py", "",
     (_stage("collectives", "all_reduce and (turns or repeat or far)"),
      # Three members, since two never use atomics on one element, and round a sum of narrow floats once in any case.
      _stage("collectives", "all_reduce and (turns or narrow)", 3), _REDUCING, _stage("collectives", "queued"), _CODE)),
    (r"kernels/ll\.py|device/flagged\.py", "",
     (_stage("collectives", "protocol or repeat"), _stage("collectives", "far or turns or wrapped"),
      _stage("collectives", "narrow", 3), _stage("collectives", "test_operations"))),
    (r"kernels/(arguments|move|tiles)\.py", "", (_MOVING, _stage("collectives"))),
    (r"kernels/gather_matmul\.py|ops/all_gather_matmul\.py", "", (_stage("ops", "all_gather_matmul"), _CODE)),
    (r"kernels/matmul_push\.py", "", (_stage("ops", "matmul_all_gather"), _CODE)),
    (r"kernels/matmul_reduce\.py|ops/reduction\.py", "", (_stage("ops", "all_reduce or reduce_scatter"), _CODE)),
    (r"(kernels|ops)/.*", "", (_stage("ops"),)),
    (r"device/.*", "", (_MOVING, _REDUCING, _ORDER, _stage("host", "barrier"))),
    (r"ccl/utils\.py", "", (_stage("host", "groups"),)),
    (r"ccl/.*", "", (_MOVING, _stage("collectives"))),
    (r"bench/.*|host/platform/timing\.py", "", (_stage("bench"),)),
    (r"host/memory/.*|host/platform/emulated/.*", "", (_stage("memory"), _stage("providers host distributed"))),
    (r"host/tensor_\w+\.py", "", (_stage("host", "tensors or errors"),)),
    (r"host/distributed/.*", "", (_stage("distributed host", "not life"),)),
    (r"host/(device_barrier|groups)\.py", "", (_stage("host isa", "barrier or group"), _GROUPS)),
    (r".*", "", (_stage("host"), _stage("distributed memory"))),
)  # fmt: skip
"""Pattern of the file, pattern of the innermost function, stages. ``{op}`` is the function without ``atomic_``."""


def stages_of(mutant: Mutant, *, thorough: bool = False, levels: Collection[str] = LEVELS) -> tuple[Stage, ...]:
    """Return the stages of a source or harness mutant; if ``thorough``, the whole suite is the last one at level ci.

    ``levels``: those of a mutant of the library. One that is argued to be equivalent has the first alone: it survives
    every test, so it would take longer than any other. A listed defect has the tests and the number of ranks that its
    list names. The tests of the harness have no level.
    """
    if mutant.kind == HARNESS:
        return (Stage(TESTS[mutant.file]),)
    stages = (Stage(("conformance",), mutant.chosen, mutant.ranks),) if mutant.chosen else _stages(mutant)
    ranks = 0 if mutant.chosen else GATE_RANKS
    again = tuple(replace(stage, level=SECOND, ranks=max(stage.ranks, ranks)) for stage in stages)
    every = (*stages, WHOLE, *again) if thorough else (*stages, *again)
    return tuple(stage for stage in every if stage.level in levels)


def _stages(mutant: Mutant) -> tuple[Stage, ...]:
    function = mutant.function.rpartition(".")[2]
    for file, inside, stages in _RULES:
        if re.fullmatch(file, mutant.file) and (not inside or re.fullmatch(inside, function)):
            op = function.removeprefix("atomic_")
            first = (
                stage
                for operator, file, stage in _BY_OPERATOR
                if re.fullmatch(operator, mutant.operator) and re.fullmatch(file, mutant.file)
            )
            return (*first, *(replace(one, chosen=one.chosen.replace("{op}", op)) for one in stages))
    raise AssertionError("the last rule matches every file")
