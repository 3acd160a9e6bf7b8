"""The device side: contexts, mailboxes, tiles, traces."""

from __future__ import annotations

from mutants.planting import Defect


def device_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: device: debug check lets the byte at the heap's end through",
            "device/debug.py",
            "((first >= 0) & (last < heap_size))",
            "((first >= 0) & (last <= heap_size))",
            "def check",
            "test_debug_build",
        ),
        Defect(
            "unseen: device: debug check of Gluon copy validates the source rank twice",
            "device/gluon/context.py",
            'check(dst_ptr, self.heap_bases, self.cur_rank, to_rank, mask, "copy")',
            'check(dst_ptr, self.heap_bases, self.cur_rank, from_rank, mask, "copy")',
            "def copy",
            "test_debug_build",
        ),
        Defect(
            "unseen: device: Gluon atomic_min may be combined as unsigned",
            "device/gluon/context.py",
            "return used(gl.atomic_min(remote, val, mask=mask, sem=sem, scope=scope))",
            "return gl.atomic_min(remote, val, mask=mask, sem=sem, scope=scope)",
            "def atomic_min",
            "test_min and int64",
        ),
        Defect(
            "unseen: device: epoch after the wrap reuses the same set of slots",
            "device/flagged.py",
            "tl.where(epoch == -1, 2, epoch + 1)",
            "tl.where(epoch == -1, 1, epoch + 1)",
            "def next_epoch",
            "test_wrapped_counts and all_gather",
        ),
        Defect(
            "unseen: device: end of the first event beyond the trace table is stored",
            "device/trace_records.py",
            "mask=(handle >= 0) & (handle < tracing.max_events))",
            "mask=(handle >= 0) & (handle <= tracing.max_events))",
            "def close_record",
            "test_gluon and first",
        ),
        Defect(
            "unseen: device: clock reads are pure and merge",
            "device/targets/amd.py",
            '"s_memrealtime $0\\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=False, pack=1',
            '"s_memrealtime $0\\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=tl.int64, is_pure=True, pack=1',
            "def read_realtime",
            "clock",
        ),
        Defect(
            "unseen: device: ring tile sum begins with the caller",
            "device/triton/tile_collectives.py",
            "_total(tile, src_view, _tile_id(tile, src_view) % ctx.world_size, ctx)",
            "_total(tile, src_view, ctx.rank, ctx)",
            "def all_reduce_ring",
            "same_sums",
            ranks=4,
        ),
        Defect(
            "unseen: device: tile flag counts as ready at any value but 0",
            "device/triton/tile_collectives.py",
            "while peek(there) != 1:",
            "while peek(there) == 0:",
            "def _wait_for_all",
            "test_steps and all_reduce_one_shot",
        ),
        Defect(
            "unseen: device: message programs count themselves without publishing",
            "device/mailboxes.py",
            "    publish()\n    box = _box(boxes, rank, dst, tag)\n    others",
            "    box = _box(boxes, rank, dst, tag)\n    others",
            "def is_last_sender",
            "test_messages and fp16",
        ),
        Defect(
            "unseen: device: wide path of a message ignores the receiver's row stride",
            "kernels/messages.py",
            "(straight & (source_m % VECTOR == 0) & (target_m % VECTOR == 0))",
            "(straight & (source_m % VECTOR == 0))",
            "def _push",
            "test_messages and int8",
        ),
        Defect(
            "unseen: device: a passed mask replaces that of the view",
            "device/triton/tiles.py",
            "mask = mask & src_mask",
            "mask = src_mask",
            "def tile_ptr_from_indices",
            "test_views",
        ),
        Defect(
            "unseen: device: turns are compared without their difference",
            "device/targets/amd.py",
            "        v_sub_u32 $0, $0, $4\n        v_cmp_gt_i32 vcc, 0, $0\n",
            "        v_cmp_gt_i32 vcc, $4, $0\n",
            "def _is_any_late",
            "test_device_barrier",
        ),
        Defect(
            "unseen: device: DeviceContext.atomic_cas drops the scope",
            "device/triton/context.py",
            "return ops.atomic_cas(pointer, cmp, val, self.rank, to_rank, self.heap_bases, sem, scope, hint)",
            "return ops.atomic_cas(pointer, cmp, val, self.rank, to_rank, self.heap_bases, sem, hint=hint)",
            "def atomic_cas",
            "test_order_by_context and cas",
        ),
        Defect(
            "unseen: device: columns of a tile are 32-bit",
            "kernels/arguments.py",
            "columns = tile_n.to(tl.int64) * self.BLOCK_N + self.lanes % self.BLOCK_N",
            "columns = tile_n * self.BLOCK_N + self.lanes % self.BLOCK_N",
            "def elements",
            "test_far and all_reduce",
        ),
        Defect(
            "unseen: device: the sender notifies the receiver before it clears its own flag of readiness",
            "device/mailboxes.py",
            "    box = _box(boxes, rank, dst, tag)\n"
            "    poke(_flag(box, _SENT), 0)\n"
            "    poke(_flag(box, 0), 0)\n"
            "    box = _box(boxes, dst, rank, tag)\n"
            "    tl.store(box + 9, rows)\n"
            "    tl.store(box + 10, columns)\n"
            "    tl.store(box + 11, kind)\n"
            "    publish()\n"
            "    poke(_flag(box, _DELIVERED), 1)\n",
            "    box = _box(boxes, dst, rank, tag)\n"
            "    tl.store(box + 9, rows)\n"
            "    tl.store(box + 10, columns)\n"
            "    tl.store(box + 11, kind)\n"
            "    publish()\n"
            "    poke(_flag(box, _DELIVERED), 1)\n"
            "    # The receiver need not wait for this.\n"
            "    box = _box(boxes, rank, dst, tag)\n"
            "    poke(_flag(box, _SENT), 0)\n"
            "    poke(_flag(box, 0), 0)\n",
            "def notify_receiver",
            "test_send_recv and test_stopping",
        ),
        Defect(
            "unseen: device: mailboxes of different peers coincide for tags from 16 on",
            "device/mailboxes.py",
            "(peer * MAX_TAGS + tag) * BOX_WORDS",
            "(peer * BOX_WORDS + tag) * BOX_WORDS",
            "def _box",
            "test_send_recv and test_tags",
        ),
        Defect(
            "unseen: device: on AMD the barrier of publish comes before the write-back instead of after it",
            "device/targets/amd.py",
            "    tl.inline_asm_elementwise(\n"
            '        "buffer_wbl2 sc0 sc1\\ns_waitcnt vmcnt(0) lgkmcnt(0)\\nv_mov_b32 $0, 0",\n'
            '        "=v,~{memory}", [], tl.int32, is_pure=False, pack=1,\n'
            "    )  # fmt: skip\n"
            "    tl.debug_barrier()\n",
            "    tl.debug_barrier()\n"
            "    tl.inline_asm_elementwise(\n"
            '        "buffer_wbl2 sc0 sc1\\ns_waitcnt vmcnt(0) lgkmcnt(0)\\nv_mov_b32 $0, 0",\n'
            '        "=v,~{memory}", [], tl.int32, is_pure=False, pack=1,\n'
            "    )  # fmt: skip\n",
            "def publish",
            "test_all_gather and 2",
        ),
        Defect(
            "unseen: device: tile collectives do not wait for the caller's own flag",
            "device/triton/tile_collectives.py",
            "    for step in range(ctx.world_size):\n        there = _moved(flag,",
            "    for step in range(1, ctx.world_size):\n        there = _moved(flag,",
            "def _wait_for_all",
            "test_summing_tiles",
        ),
        Defect(
            "unseen: device: reduce_scatter with fewer tiles than ranks gives tile i to rank i "
            "instead of all to the last rank",
            "device/triton/tile_collectives.py",
            "    if number >= ctx.rank * share and (ctx.rank == ctx.world_size - 1 or number < "
            "(ctx.rank + 1) * share):\n",
            "    owner = tl.minimum(number // tl.maximum(share, 1), ctx.world_size - 1)\n    if owner == ctx.rank:\n",
            "def reduce_scatter",
            "test_order_of_tiles",
        ),
        Defect(
            "unseen: device: a view moved by offset() is computed in 32 bits",
            "device/triton/tiles.py",
            "return ptr + (tl.cast(offset_m, tl.int64) * stride_m + tl.cast(offset_n, tl.int64) * stride_n)",
            "return ptr + (offset_m * stride_m + offset_n * stride_n)",
            "def offset_ptr",
            "test_views",
        ),
        Defect(
            "unseen: device: atomic_sub negates in the operand's type before it converts to the cell's",
            "device/operands.py",
            "result = value * tl.where(positive > 0, -1, 1).to(element_ty)",
            "result = tl.cast(val * tl.where(positive > 0, -1, 1), element_ty)",
            "def negated",
            "test_sub and int64",
        ),
        Defect(
            "unseen: device: record_event_end writes for an event whose handle is negative",
            "device/trace_records.py",
            "mask=(handle >= 0) & (handle < tracing.max_events)",
            "mask=handle < tracing.max_events",
            "def close_record",
            "test_gluon and first",
        ),
        Defect(
            "unseen: device: operations are not counted once the trace table is full",
            "device/trace_records.py",
            '    op_index = tl.atomic_add(tracing.op_index_counter, 1, sem="relaxed", scope="gpu")\n'
            "    # A count beyond 2^31 is negative.\n"
            "    room = (handle >= 0) & (handle < tracing.max_events)\n",
            "    # A count beyond 2^31 is negative.\n"
            "    room = (handle >= 0) & (handle < tracing.max_events)\n"
            '    op_index = tl.atomic_add(tracing.op_index_counter, 1, mask=room, sem="relaxed", '
            'scope="gpu")\n',
            "def open_record",
            "test_gluon and first",
        ),
        Defect(
            "unseen: device: the recorded payload of boolean pointers is 0 in Triton",
            "device/triton/tracing.py",
            "bytes_per_element: tl.constexpr = (address.dtype.element_ty.primitive_bitwidth + 7) // 8",
            "bytes_per_element: tl.constexpr = address.dtype.element_ty.primitive_bitwidth // 8",
            "def _payload",
            "test_shapes",
        ),
        Defect(
            "unseen: device: DeviceContext.load drops volatile",
            "device/triton/context.py",
            "            pointer, self.rank, from_rank, self.heap_bases, mask, other, "
            "cache_modifier, volatile, hint\n"
            "        )  # fmt: skip",
            "            pointer, self.rank, from_rank, self.heap_bases, mask, other, "
            "cache_modifier, hint=hint\n"
            "        )  # fmt: skip",
            "def load",
            "test_cache_modifiers and by_context and load",
        ),
    ]
