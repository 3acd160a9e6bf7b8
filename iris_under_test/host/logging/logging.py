"""Logging through the standard logger named ``iris``, with rank and world size on each record.

The logger gets its level and its one stream handler when an ``Iris`` is made or at first use, not at import, and only
if the application has not set them itself. The level is that of the environment variable ``IRIS_LOG_LEVEL`` (DEBUG,
INFO, WARNING or ERROR), else INFO.
"""

from __future__ import annotations

import logging
import os

__all__ = ["DEBUG", "ERROR", "INFO", "WARNING", "IrisFormatter", "configure", "log", "logger", "set_logger_level"]

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

LEVEL_VARIABLE = "IRIS_LOG_LEVEL"
_LEVELS = {"DEBUG": DEBUG, "INFO": INFO, "WARNING": WARNING, "ERROR": ERROR}

logger = logging.getLogger("iris")


class IrisFormatter(logging.Formatter):
    """``HH:MM:SS LEVEL [Iris] [rank/world] message``; the library's own records have ``[module]`` before the text.

    A record without a rank, as of ``logger.info(...)``, has ``?`` in the place of both numbers. Exception and stack
    text follow as usual. Source: Iris API, section 2.2 (M).

    Example: ``09:05:01 INFO [Iris] [1/4] ready``, ``09:05:02 WARNING [Iris] [?/?] [tracing] is not enabled``.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s [Iris] [%(iris_place)s] %(iris_prefix)s%(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        rank, num_ranks = getattr(record, "iris_rank", None), getattr(record, "iris_num_ranks", None)
        module = getattr(record, "iris_module", None)
        record.iris_place = f"{'?' if rank is None else rank}/{'?' if num_ranks is None else num_ranks}"
        record.iris_prefix = f"[{module}] " if module else ""
        return super().format(record)


def configure() -> None:
    """Set the logger's level and handler where the application has set none. Idempotent.

    Raises:
        ValueError: ``IRIS_LOG_LEVEL`` names no level.
    """
    if logger.level == logging.NOTSET:
        logger.setLevel(_level_of_environment())
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(IrisFormatter())
        logger.addHandler(handler)


def set_logger_level(level: int) -> None:
    """Set the lowest level that is shown: DEBUG, INFO, WARNING or ERROR. It overrides ``IRIS_LOG_LEVEL``."""
    logger.setLevel(level)
    configure()


def log(
    level: int, message: str, rank: int | None = None, num_ranks: int | None = None, module: str | None = None
) -> None:
    """Logs ``message`` with the rank attached; the record's place is that of the caller's caller.

    ``module`` is for the library's own records: which part of it speaks.
    """
    configure()
    logger.log(
        level,
        message,
        extra={"iris_rank": rank, "iris_num_ranks": num_ranks, "iris_module": module},
        stacklevel=3,
    )


def _level_of_environment() -> int:
    name = os.environ.get(LEVEL_VARIABLE, "").strip().upper() or "INFO"
    if name not in _LEVELS:
        raise ValueError(f"{LEVEL_VARIABLE} must be one of {', '.join(_LEVELS)}, got {os.environ[LEVEL_VARIABLE]!r}")
    return _LEVELS[name]
