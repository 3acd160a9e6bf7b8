"""``Config``: options of a collective's kernel."""

from __future__ import annotations

from dataclasses import dataclass

from iris_under_test.host.platform.kinds import xcd_count

__all__ = ["Config"]

ALL_GATHER_VARIANTS = ("persistent", "partitioned")
ALL_REDUCE_VARIANTS = ("atomic", "ring", "two_shot", "one_shot", "spinlock", "two_shot_push")
REDUCE_SCATTER_VARIANTS = ("two_shot",)
PROTOCOLS = ("simple", "ll")
LL_ALGORITHMS = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce one_shot", "broadcast")
"""Algorithms that the "ll" protocol supports."""


@dataclass
class Config:
    """Options of a collective's kernel. Checked at construction only; fields may be assigned later.

    Attributes:
        block_size_m, block_size_n: tile, in elements.
        swizzle_size: rows of tiles in a group, within which tiles are numbered column by column.
        comm_sms: largest number of programs.
        num_xcds: compute dies of the device; None detects them (8 on MI300 and MI350, else 1).
        chunk_size: consecutive programs per die; None means min(swizzle_size**2, comm_sms // num_xcds), at least 1.
        use_gluon: use the Gluon kernel instead of the Triton kernel.
        all_gather_variant, all_reduce_variant, reduce_scatter_variant: algorithm.
        all_reduce_distribution: 0 striding, 1 block.
        all_reduce_num_rings: rings of the ring variant.
        all_reduce_ring_slice_n: columns per ring step; None means block_size_n.
        num_stages, num_warps, waves_per_eu: compiler options of the kernel; num_warps is a power of two, waves_per_eu
            an AMD occupancy hint, 0 for none.
        threads_per_warp: lanes of a warp, 32 or 64. The default, 64, stands for the lane count of the device that the
            kernel runs on; a collective refuses another value that is not this count.
        protocol: how programs of different members synchronise: "simple", by barriers; "ll", for small sizes, by a
            sequence number next to each 4 bytes of data. Not in upstream Iris.

    Raises:
        ValueError: a field breaks its rule; the message has the field and the value.
    """

    block_size_m: int = 32
    block_size_n: int = 64
    swizzle_size: int = 4
    comm_sms: int = 64
    num_xcds: int | None = None
    chunk_size: int | None = None
    use_gluon: bool = False
    all_gather_variant: str = "persistent"
    all_reduce_variant: str = "two_shot"
    all_reduce_distribution: int = 1
    all_reduce_num_rings: int = 1
    all_reduce_ring_slice_n: int | None = None
    reduce_scatter_variant: str = "two_shot"
    num_stages: int = 1
    num_warps: int = 4
    threads_per_warp: int = 64
    waves_per_eu: int = 0
    protocol: str = "simple"

    def __post_init__(self) -> None:
        if self.num_xcds is None:
            self.num_xcds = xcd_count()
        for field in (
            "block_size_m",
            "block_size_n",
            "swizzle_size",
            "comm_sms",
            "num_xcds",
            "all_reduce_num_rings",
            "num_warps",
        ):
            self._require_positive(field)
        if self.chunk_size is None:
            # More dies than programs would give 0, a chunk that holds no program.
            self.chunk_size = max(1, min(self.swizzle_size**2, self.comm_sms // self.num_xcds))
        self._require_positive("chunk_size")
        if self.all_reduce_ring_slice_n is None:
            self.all_reduce_ring_slice_n = self.block_size_n

        self._require_one_of("all_gather_variant", ALL_GATHER_VARIANTS)
        self._require_one_of("all_reduce_variant", ALL_REDUCE_VARIANTS)
        self._require_one_of("all_reduce_distribution", (0, 1))
        self._require_one_of("reduce_scatter_variant", REDUCE_SCATTER_VARIANTS)
        self._require_one_of("threads_per_warp", (32, 64))
        self._require_one_of("protocol", PROTOCOLS)
        self._check_ring_slice(self.all_reduce_ring_slice_n)
        # Checked here, because Triton only asserts the first, and LLVM prints a complaint about the second and
        # continues.
        if self.num_warps & (self.num_warps - 1):
            raise ValueError(f"num_warps must be a power of two, got {self.num_warps}")
        if self.waves_per_eu < 0:
            raise ValueError(f"waves_per_eu must not be negative, got {self.waves_per_eu}")

    def _require_positive(self, field: str) -> None:
        value = getattr(self, field)
        if value <= 0:
            raise ValueError(f"{field} must be positive, got {value}")

    def _require_one_of(self, field: str, allowed: tuple[object, ...]) -> None:
        value = getattr(self, field)
        if value not in allowed:
            raise ValueError(f"{field} must be one of {allowed}, got {value!r}")

    def _check_ring_slice(self, columns: int) -> None:
        self._require_positive("all_reduce_ring_slice_n")
        if self.block_size_n % columns:
            raise ValueError(f"all_reduce_ring_slice_n must divide block_size_n {self.block_size_n}, got {columns}")
        if columns & (columns - 1):
            raise ValueError(f"all_reduce_ring_slice_n must be a power of two, got {columns}")
