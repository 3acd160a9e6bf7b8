"""Collectives on the symmetric heap: ``ctx.ccl.all_gather(...)`` or ``ccl.all_gather(..., ctx)``."""

from .all_gather import all_gather, all_gather_config
from .config import Config
from .reduce_op import ReduceOp
from .tuning import tuned_config

__all__ = ["Config", "ReduceOp", "all_gather", "all_gather_config", "tuned_config"]
