"""The format of a log line, the level that IRIS_LOG_LEVEL sets, and the rank in what a collective logs."""

import importlib
import io
import logging
import re
import tempfile

import torch

from conformance.host.checks import run_named
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.requirement import requirement

VARIABLE, ARTIFACTS = "IRIS_LOG_LEVEL", "IRIS_KERNEL_ARTIFACTS_DIR"
TIME = r"\d\d:\d\d:\d\d"


def formats(env, findings):
    """Check the format of a user's own log record and of an instance's."""
    foreign, own = env.in_library(formatted)
    findings.equal("formatted records of a user", len(foreign), len(NAMES))
    for line, name in zip(foreign, NAMES, strict=False):
        findings.true(
            f"{line!r} has ? for rank and world", re.fullmatch(rf"{TIME} {name} \[Iris\] \[\?/\?\] found 3", line)
        )
    place = rf"\[{env.rank}/{env.world_size}\]"
    findings.equal("lines of one message", len(own), 1)
    for line in own:
        findings.true(f"{line!r} has rank and world", re.fullmatch(rf"{TIME} WARNING \[Iris\] {place} found 3", line))


NAMES = ("DEBUG", "INFO", "WARNING", "ERROR")


def formatted(env):
    """Return a record of each level as the library formats it, and the records of a message of the instance."""
    formatter = importlib.import_module(f"{env.under_test.name}.host.logging.logging").IrisFormatter()
    foreign = [
        formatter.format(logging.LogRecord("iris", getattr(logging, name), "file.py", 1, "found %d", (3,), None))
        for name in NAMES
    ]
    return foreign, logged(env, lambda: env.iris.warning("found 3"))


def logged(env, act):
    """Return the lines that the library logs while ``act`` runs."""
    kept = []

    class Keeper(logging.Handler):
        def emit(self, record):
            kept.append(record)

    keeper, logger = Keeper(), env.under_test.module.logger
    logger.addHandler(keeper)
    try:
        act()
    finally:
        logger.removeHandler(keeper)
    formatter = importlib.import_module(f"{env.under_test.name}.host.logging.logging").IrisFormatter()
    return [formatter.format(record) for record in kept]


def calls(env, findings):
    """Check that what a collective logs names this rank: at level DEBUG, while kernels are stored, as in no other
    case."""
    for line in env.in_library(logged_by_a_collective):
        findings.true(f"{line!r} has this rank", re.match(rf"{TIME} DEBUG \[Iris\] \[{env.rank}/", line))


def logged_by_a_collective(env):
    logger, environ = env.under_test.module.logger, env.module("os").environ
    level, iris = logger.level, env.under_test.iris(heap_size=1 << 16)
    mine, all_of_them = (iris.zeros(rows, 16, dtype=torch.float32) for rows in (8, 8 * env.world_size))
    with tempfile.TemporaryDirectory() as folder:
        environ.update({ARTIFACTS: folder})
        logger.setLevel(logging.DEBUG)
        try:
            return logged(env, lambda: iris.ccl.all_gather(all_of_them, mine))
        finally:
            logger.setLevel(level)
            environ.pop(ARTIFACTS)
            release(iris)


def handlers(env, findings):
    """Check that a new instance adds the logger's handler if it has none, with and without one of the application."""
    for root in (False, True):
        count, lines = env.in_library(logged_by_a_handler, root)
        label = "with" if root else "without"
        findings.equal(f"stream handlers of the logger {label} one of the root logger", count, 1)
        findings.true(
            f"{lines!r} has rank and world, {label} a handler of the root logger",
            re.fullmatch(rf"{TIME} WARNING \[Iris\] \[{env.rank}/{env.world_size}\] found 3\n", lines),
        )


def logged_by_a_handler(env, root):
    """Return the number of handlers that a new instance adds to the logger, and what the first one writes.

    ``root``: whether the root logger has a handler.
    """
    logger, above = env.under_test.module.logger, logging.getLogger()
    kept, kept_above, text = logger.handlers[:], above.handlers[:], io.StringIO()
    logger.handlers[:], above.handlers[:] = [], [logging.NullHandler()] if root else []
    try:
        iris = env.under_test.iris(heap_size=1 << 16)
        added = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
        if added:
            added[0].setStream(text)
            iris.warning("found 3")
        release(iris)
    finally:
        logger.handlers[:], above.handlers[:] = kept, kept_above
    return len(added), text.getvalue()


def levels(env, findings):
    """Check that a new instance takes the level from the environment if none is set, and adds a handler if the logger
    has none."""
    logger, environ = env.under_test.module.logger, env.module("os").environ
    before, level = environ.pop(VARIABLE, None), logger.level
    try:
        for name in ("ERROR", "DEBUG", "WARNING", "INFO", None):
            logger.setLevel(logging.NOTSET)
            if name is not None:
                environ.update({VARIABLE: name})
            else:
                environ.pop(VARIABLE)
            release(env.under_test.iris(heap_size=1 << 16))
            findings.equal(f"level with {VARIABLE}={name}", logging.getLevelName(logger.level), name or "INFO")
        logger.setLevel(logging.NOTSET)
        handlers(env, findings)
        logger.setLevel(logging.NOTSET)
        # A wrong level on one rank only: every rank gets an error.
        if env.rank == env.world_size - 1:
            environ.update({VARIABLE: "LOUD"})
        findings.raises(
            f"{VARIABLE}=LOUD on the last rank",
            (ValueError, RuntimeError),
            lambda: env.under_test.iris(heap_size=1 << 16),
        )
    finally:
        environ.pop(VARIABLE, None)
        if before is not None:
            environ.update({VARIABLE: before})
        logger.setLevel(level)


CHECKS = {check.__name__: check for check in (formats, levels, calls)}


def run(env, case):
    return run_named(env, case, CHECKS)


@requirement("HOST-LOG-002", cases=lambda ranks: [HostCase(name) for name in CHECKS])
def test_log_format(check, case):
    check(run, case)
