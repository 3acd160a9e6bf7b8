"""``FusedConfig``: options of a fused matmul and collective."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALL_REDUCE_VARIANTS", "FusedConfig"]

ALL_REDUCE_VARIANTS = ("atomic", "ring", "two_shot", "one_shot", "spinlock")
LOAD_MODIFIERS = (None, "", ".ca", ".cg", ".cv")


@dataclass
class FusedConfig:
    """Options of a fused op. Fields may be assigned at any time. Ops call ``validate``; the constructor does not.

    Attributes:
        block_size_m, block_size_n, block_size_k: tile of the result, and of the inner dimension, in elements: powers
            of two, at least 16, as ``tl.dot`` requires (the ops check this; ``validate`` requires positive numbers).
            Blocks may be larger than the problem; in upstream Iris that is an AssertionError.
        group_size_m: tile rows in a group, within which tiles are numbered column by column; 1 is row by row.
        num_sms: largest number of programs; None means one per compute unit.
        num_xcds, chunk_size: order of programs over compute dies; see ``kernels.tiles``.
        cache_modifier_a, cache_modifier_b: cache modifiers of the loads of the two inputs.
        allow_tf32: float32 inputs may be multiplied with 10 bits of mantissa, if the device can (NVIDIA, gfx942).
        all_reduce_variant: algorithm of ``matmul_all_reduce``; see there.
        all_reduce_num_rings: rings of the ring variant.
    """

    block_size_m: int = 256
    block_size_n: int = 64
    block_size_k: int = 64
    group_size_m: int = 1
    num_sms: int | None = None
    num_xcds: int = 1
    chunk_size: int = 1
    cache_modifier_a: str | None = ".ca"
    cache_modifier_b: str | None = ".ca"
    allow_tf32: bool = True
    all_reduce_variant: str = "two_shot"
    all_reduce_num_rings: int = 1

    def validate(self, world_size: int | None = None) -> None:
        """Raise ValueError, with the field and its value, if a field breaks its rule.

        ``world_size``: the columns of a tile of the ring variant must be a multiple of it.
        """
        for field in (
            "block_size_m",
            "block_size_n",
            "block_size_k",
            "group_size_m",
            "num_sms",
            "num_xcds",
            "chunk_size",
            "all_reduce_num_rings",
        ):
            value = getattr(self, field)
            if field == "num_sms" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise ValueError(f"{field} must be a positive int, got {value!r}")
        for field in ("cache_modifier_a", "cache_modifier_b"):
            if getattr(self, field) not in LOAD_MODIFIERS:
                raise ValueError(f"{field} must be one of {LOAD_MODIFIERS}, got {getattr(self, field)!r}")
        if self.all_reduce_variant not in ALL_REDUCE_VARIANTS:
            raise ValueError(
                f"all_reduce_variant must be one of {ALL_REDUCE_VARIANTS}, got {self.all_reduce_variant!r}"
            )
        if self.all_reduce_variant == "ring" and world_size is not None and self.block_size_n % world_size:
            raise ValueError(
                f"the ring variant: block_size_n {self.block_size_n} must be a multiple of {world_size} ranks"
            )
