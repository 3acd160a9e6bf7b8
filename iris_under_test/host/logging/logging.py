"""Logging through the standard logger named ``iris``, with rank and world size on each record.

The logger gets its level (INFO) and its one stream handler at first use, not at import, and only if the application
has not set them itself.
"""

from __future__ import annotations

import logging

__all__ = ["DEBUG", "ERROR", "INFO", "WARNING", "IrisFormatter", "log", "logger", "set_logger_level"]

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

logger = logging.getLogger("iris")


class IrisFormatter(logging.Formatter):
    """``[Iris] [rank/world] message``, or ``[Iris] message`` for a record without a rank."""

    def format(self, record: logging.LogRecord) -> str:
        rank = getattr(record, "iris_rank", None)
        num_ranks = getattr(record, "iris_num_ranks", None)
        place = "" if rank is None or num_ranks is None else f"[{rank}/{num_ranks}] "
        # super() also appends exception and stack text.
        return f"[Iris] {place}{super().format(record)}"


def set_logger_level(level: int) -> None:
    """Sets the lowest level that is shown: DEBUG, INFO, WARNING or ERROR."""
    _configure()
    logger.setLevel(level)


def log(level: int, message: str, rank: int | None = None, num_ranks: int | None = None) -> None:
    """Logs ``message`` with the rank attached; the record's place is that of the caller's caller."""
    _configure()
    logger.log(level, message, extra={"iris_rank": rank, "iris_num_ranks": num_ranks}, stacklevel=3)


def _configure() -> None:
    if logger.level == logging.NOTSET:
        logger.setLevel(INFO)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(IrisFormatter())
        logger.addHandler(handler)
