"""Rank groups: processes started by torch.distributed.elastic that outlive failing, hanging and crashing cases."""

from harness.ranks.errors import CaseFailed, RankCrash, RankCutOff, RankError, RankFailure, RankHang
from harness.ranks.group import RankGroup, Ranks

__all__ = ["CaseFailed", "RankCrash", "RankCutOff", "RankError", "RankFailure", "RankGroup", "RankHang", "Ranks"]
