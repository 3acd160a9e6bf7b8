"""A kernel is compiled once per machine, and a compiler that aborts is the verdict of its case."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import triton

from harness.errors import CompilerAborted, HarnessError, KernelFault
from harness.ranks import RankFailure, RankGroup, raised

TARGETS = "tests.ranks.compile_targets"


class Planted:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (66,)


class Rig:
    """A group with its own kernel cache, and the log of every compilation in it: rank, pid, parent pid."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "compilations"
        self.log.touch()
        self.locks = folder / "cache" / f"iris-harness-locks-{os.getuid()}"
        environment = {"TRITON_CACHE_DIR": str(folder / "cache"), "COMPILATIONS": str(self.log)}
        self.group = RankGroup(3, f"{TARGETS}:setup", environment=environment)

    def compilations(self) -> list[list[int]]:
        lines = [[int(word) for word in line.split()] for line in self.log.read_text().splitlines()]
        self.log.write_text("")
        return lines

    def errors(self, target: str, payload: object = None) -> RankFailure:
        with pytest.raises(RankFailure) as caught:
            self.group.call(f"{TARGETS}:{target}", payload, deadline=200)
        assert sorted(caught.value.errors) == [0, 1, 2], "every rank has the verdict"
        return caught.value


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("compile"))
    with rig.group:
        rig.group.start()
        yield rig
        assert rig.group.generation == 1, "no compiler's fault cost the group its processes"
        assert not [child for pid in rig.group.pids for child in psutil.Process(pid).children()]


@pytest.mark.slow
def test_ranks_that_need_one_kernel_compile_it_once(rig: Rig) -> None:
    rig.compilations()
    results = rig.group.call(f"{TARGETS}:compile_copy", ("fp16", 256), deadline=200)
    assert len(set(results)) == 1
    assert "global_store_short" in results[0][1]
    compilations = rig.compilations()
    assert len(compilations) == 1
    _, pid, parent = compilations[0]
    assert parent in rig.group.pids, "in a child of the rank"
    assert not psutil.pid_exists(pid)


def test_a_cached_kernel_is_not_compiled(rig: Rig) -> None:
    first = rig.group.call(f"{TARGETS}:compile_copy", ("fp32", 256), deadline=200)
    rig.compilations()
    assert rig.group.call(f"{TARGETS}:compile_copy", ("fp32", 256), deadline=200) == first
    assert rig.compilations() == []


def test_another_kernel_is_compiled_too(rig: Rig) -> None:
    first = rig.group.call(f"{TARGETS}:compile_copy", ("fp64", 256), deadline=200)
    rig.compilations()
    assert rig.group.call(f"{TARGETS}:compile_copy", ("fp64", 128), deadline=200)[0][0] != first[0][0]
    assert len(rig.compilations()) == 1


def test_an_error_of_the_compiler_keeps_its_type_on_every_rank(rig: Rig) -> None:
    rig.compilations()
    failure = rig.errors("compile_wrong")
    for error in failure.errors.values():
        assert error.type == "triton.compiler.errors.CompilationError"
        assert "no_such_name" in error.message
    assert len(rig.compilations()) == 1, "the failure was remembered for the other ranks"


def test_an_aborting_compiler_is_a_verdict(rig: Rig) -> None:
    failure = rig.errors("compile_aborting")
    for error in failure.errors.values():
        assert error.is_a(CompilerAborted)
        assert error.is_a(KernelFault)
        assert error.report["kernel"] == "copy"
        assert error.report["how"] == "signal 6 (SIGABRT)"
        assert error.report["output"].startswith("LLVM ERROR: planted\n")
        assert error.report["output"].endswith("the last line\n")
        assert len(error.report["output"]) < 10_000


def test_the_real_compiler_that_aborts(rig: Rig) -> None:
    """fp64 atomic_xchg on a plain pointer at gpu scope: Triton 3.9 aborts; 3.6 raises, for every dtype."""
    failure = rig.errors("compile_exchange", "fp64")
    for error in failure.errors.values():
        if triton.__version__.startswith("3.6."):
            assert (error.type, error.message) == ("builtins.RuntimeError", "failed to translate module to LLVM IR")
        else:
            assert error.report["how"] == "signal 6 (SIGABRT)"
            assert "Cannot select" in error.report["output"]


def test_a_killed_compilation_is_tried_again(rig: Rig) -> None:
    assert rig.group.call(f"{TARGETS}:compile_killed", deadline=200) == [None] * 3


def test_a_compiler_that_leaves_is_a_verdict(rig: Rig) -> None:
    failure = rig.errors("compile_leaving")
    assert failure.errors[0].report["how"] == "exit status 3"


def test_an_error_that_cannot_be_pickled_keeps_its_type(rig: Rig) -> None:
    failure = rig.errors("compile_unpicklable")
    assert (failure.errors[0].type, failure.errors[0].message) == (f"{TARGETS}.UnpicklableError", "holds a lock")
    assert "in act" in failure.errors[0].traceback, "with the place where the compiler raised it"


def test_an_error_of_an_unknown_type_comes_as_text_of_a_bounded_length(rig: Rig) -> None:
    failure = rig.errors("compile_with_a_type_of_its_own")
    for error in failure.errors.values():
        assert error.is_a(raised.CompilerError) and error.is_a(KernelFault)
        assert "LocalError: xxx" in error.message and "characters cut" in error.message
        assert len(error.message) < raised.TEXT_LIMIT + 1000


def test_what_is_remembered_of_a_failure_is_never_unpickled(rig: Rig) -> None:
    """A file of another kind, from an earlier release or a full disk, is forgotten, and the kernel compiled again."""
    rig.errors("compile_wrong")
    (remembered,) = [file for file in rig.locks.glob("*.failure.json") if "no_such_name" in file.read_text()]
    remembered.write_bytes(pickle.dumps(("run", Planted(), "")))
    failure = rig.errors("compile_wrong")
    assert failure.errors[0].type == "triton.compiler.errors.CompilationError"
    assert not list(rig.locks.glob("*.lock")), "a lock that is free leaves no file"


def test_a_stalling_compiler_is_an_error_of_the_harness(rig: Rig) -> None:
    failure = rig.errors("compile_stalling")
    for error in failure.errors.values():
        assert error.is_a(HarnessError)
        assert "copy" in error.message


def test_a_compiler_that_waits_for_a_lock_of_its_parent_is_started_again(rig: Rig) -> None:
    rig.group.call(f"{TARGETS}:compile_stuck_once", deadline=200)


def test_what_the_parent_has_to_collect_is_left_to_it(rig: Rig) -> None:
    rig.group.call(f"{TARGETS}:compile_beside_garbage", deadline=200)


def test_it_can_be_taken_out_again(rig: Rig) -> None:
    assert rig.group.call(f"{TARGETS}:uninstall_and_install") == [[True, True, True]] * 3


def test_a_kernel_may_ask_for_its_target(rig: Rig) -> None:
    assert rig.group.call(f"{TARGETS}:kernel_that_asks_for_its_target", deadline=200) == [True, True, True]
