"""The device under the host side: a folder for each kind, one of which Triton's active driver stands for."""

from __future__ import annotations

from .base import Platform, Runtime, SharedMemory, SymmetricMemory, VirtualMemory
from .kinds import current

__all__ = ["Platform", "Runtime", "SharedMemory", "SymmetricMemory", "VirtualMemory", "current"]
