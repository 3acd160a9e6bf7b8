"""The logger named ``iris``."""

from .logging import DEBUG, ERROR, INFO, WARNING, IrisFormatter, configure, log, logger, set_logger_level

__all__ = ["DEBUG", "ERROR", "INFO", "WARNING", "IrisFormatter", "configure", "log", "logger", "set_logger_level"]
