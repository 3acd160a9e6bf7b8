"""Hooks of all tests: isolate tests that run pytest themselves, and report the coverage of opcodes.

After a run of the corpus, the summary counts the opcodes that the emulator implements, that the corpus executed, and
whose edge cases are tested.
"""

import ctypes
import gc
import os
import signal
import tempfile

import psutil
import pytest

from harness.errors import UsageError
from harness.ranks import forking
from tests import python
from tests.share import pytest_addoption, pytest_collection_modifyitems, pytest_report_header

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_report_header"]


@pytest.hookimpl(tryfirst=True)  # before a fork server is offered, which has the signals of this process
def pytest_configure(config):
    # A job in the background of a script ignores these signals, and so would every program that a test interrupts.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # Before torch is imported: the threads of several test processes would wait for each other in busy loops.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Runs of tests must not be registered among the user's newest runs. xdist's workers inherit the variable.
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="iris-harness-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["XDG_STATE_HOME"] = folder.name
        if not config.option.collectonly and (server := python.offered()):
            config.add_cleanup(server.close)
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]


SELDOM = (1_000_000, 20, 20)
"""For ``gc.set_threshold``: a module's objects are searched when its tests have ended, and few earlier. With the
thresholds of ranks, which keep what they make, searches took a quarter of the time of the processes that run tests."""


GROWTH = 64 << 20
"""Bytes by which a process grows before its objects are searched for garbage at the end of a module; in the middle of
one, eight times as many. A program of the emulator and its last launch refer to each other, and some modules make
thousands: without this, 3 GB were reached."""

_resident = 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Have no search for garbage visit what earlier modules left, or what their tests have unfrozen.

    Else each search takes longer than the last one: they took a third of the time of all tests. A module that left
    little is searched with a later one: hundreds of searches took a minute. The hook does not call
    ``gc.get_freeze_count``, which counts a million objects one by one.
    """
    global _resident
    gc.set_threshold(*SELDOM)  # again for each test: an earlier one may have run pytest in this process
    try:
        return (yield)
    finally:
        has_ended = nextitem is None or nextitem.path != item.path
        if psutil.Process().memory_info().rss > _resident + (GROWTH if has_ended else 8 * GROWTH):
            gc.collect()
            if has_ended:
                gc.freeze()
            _give_memory_back()
            _resident = psutil.Process().memory_info().rss


def _give_memory_back():
    """Give the system the pages that no object uses. LLVM leaves many between those that one does: of the 1.2 GB of a
    process that compiled the functions of a thousand tests, half."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@pytest.fixture
def own_keepers(monkeypatch):
    """Have the keepers of rank groups started by their controllers, so that they are among a controller's children."""
    monkeypatch.delenv(forking.VARIABLE, raising=False)


@pytest.fixture(scope="session")
def separate_nodes():
    """Skip the test, with the kernel's reason, where parts of this machine cannot be separate nodes."""
    from harness.ranks.here import NodesHere

    try:
        NodesHere(1).close()
    except UsageError as error:
        pytest.skip(str(error))


def pytest_terminal_summary(terminalreporter):
    executed: dict[str, set[str]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name.startswith("opcodes of "):
                executed.setdefault(name.removeprefix("opcodes of "), set()).update(value.split())
    if not executed:
        return
    from tests.emulator.covering import counts

    terminalreporter.section("emulator coverage")
    for arch, names in sorted(executed.items()):
        terminalreporter.line(counts(arch, names))
