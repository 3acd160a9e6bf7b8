"""The host side of collectives and messages."""

from __future__ import annotations

from mutants.planting import Defect


def collective_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: ccl: ll advances only its own programs' epochs",
            "kernels/ll.py",
            "    # Advance also the epochs of programs that this call does not have: no member reads "
            "their words now.\n"
            "    for first in range(pid, EPOCH_WORDS, programs * WORDS):\n"
            "        places = first + words * programs\n"
            "        tl.store(epochs + places, words * 0 + epoch, mask=places < EPOCH_WORDS)\n",
            "    tl.store(epochs + pid, epoch)\n",
            "def give_and_take",
            "test_alternating",
        ),
        Defect(
            "unseen: ccl: ll broadcast waits for the root's words only",
            "kernels/ll.py",
            'sender = behind(root, other, SIZE) if plan.FROM == "root" else tl.cast(other, tl.int32)',
            'sender = root if plan.FROM == "root" else tl.cast(other, tl.int32)',
            "places = ()",
            "test_protocol and broadcast",
        ),
        Defect(
            "unseen: ccl: message takes target rows for aligned when source rows are",
            "kernels/messages.py",
            "wide = run | (straight & (source_m % VECTOR == 0) & (target_m % VECTOR == 0))",
            "wide = run | (straight & (source_m % VECTOR == 0))",
            "def _push",
            "test_messages and int8",
        ),
        Defect(
            "unseen: ccl: message of another dtype is moved",
            "kernels/messages.py",
            "(their_kind == source_kind) & (source_kind >= 0)",
            "(their_kind >= 0) & (source_kind >= 0)",
            "def exchange(",
            "test_refused",
        ),
        Defect(
            "unseen: ccl: partitioned all_gather spreads over dies by all programs",
            "kernels/move.py",
            "first = tiling.first(pid // SERVERS, step)",
            "first = tiling.first(pid // SERVERS, tl.num_programs(0))",
            "def move(",
            "test_turns and all_gather",
        ),
        Defect(
            "unseen: ccl: no final wait where a member writes only its own output",
            "kernels/move.py",
            "    group.signal(pid, turn + 1)\n    group.wait(pid, turn + 1)\n",
            '    group.signal(pid, turn + 1)\n    if plan.TO != "own":\n        group.wait(pid, turn + 1)\n',
            "I have finished reading inputs.",
            "test_all_reduce and int8",
        ),
        Defect(
            "unseen: ccl: two_shot_push chooses the slot set by tile number",
            "kernels/all_reduce_push.py",
            "half = 1 - half",
            "half = (begin // SIZE + 1) & 1",
            "def push(",
            "test_turns and all_reduce",
        ),
        Defect(
            "unseen: ccl: ll takes a ragged row's last word for whole",
            "ccl/kernel_launch.py",
            "for number in (strides[0], columns, tile_columns, step)]",
            "for number in (strides[0], tile_columns, step)]",
            "def _wide",
            "test_all_gather and 1",
        ),
        Defect(
            "unseen: ccl: number of programs depends on this member's private strides",
            "ccl/kernel_launch.py",
            "tiles = -(-rows * columns // elements) if runs else tiles_m * tiles_n",
            "tiles = -(-rows * columns // elements) if one_run else tiles_m * tiles_n",
            "def launch_plan",
            "test_gather and 2",
        ),
        Defect(
            "unseen: ccl: ring's slots start behind this call's flags only",
            "ccl/all_reduce.py",
            "members.pads, *tensors, FLAG_BYTES, self.slot_bytes,",
            "members.pads, *tensors, -(-self.programs * 4 // 16) * 16, self.slot_bytes,",
            "def launch(",
            "test_alternating",
        ),
        Defect(
            "unseen: ccl: in place means the same tensor object",
            "ccl/plans.py",
            "source is not None and same_memory(output, source)",
            "source is not None and output is source",
            "output, source = _as_words(output, plan), _as_words(source, plan)",
            "test_queued and all_reduce",
        ),
        Defect(
            "unseen: ccl: workspace keeps the memory of its first call",
            "ccl/workspace.py",
            "if self.num_bytes:",
            "if self.num_bytes and self._scratch is None:",
            "def scratch",
            "test_workspace",
        ),
        Defect(
            "unseen: ccl: halves of one matrix that touch count as overlapping",
            "ccl/overlap.py",
            "highest = torch.div(starts + length - 1, their_apart",
            "highest = torch.div(starts + length, their_apart",
            "def shares_memory",
            "test_refused and all_gather",
        ),
        Defect(
            "unseen: ccl: members' ops are not compared in some all_reduce variants",
            "ccl/all_reduce.py",
            "{self.source.dtype}, {self.op!r}, {strides}",
            "{self.source.dtype}, {strides}",
            "def arguments",
            "test_refused",
        ),
        Defect(
            'unseen: ccl: under "ll" a word may straddle two tiles, because the tile\'s width is no longer looked at',
            "ccl/kernel_launch.py",
            "for number in (strides[0], columns, tile_columns, step)]",
            "for number in (strides[0], columns, step)]",
            "def _wide",
            "test_protocol and all_to_all",
        ),
        Defect(
            'unseen: ccl: under "ll" the number of programs is no longer limited by the room of a slot',
            "ccl/kernel_launch.py",
            "            config.comm_sms, -(-tiles // workers) * pieces, EPOCH_WORDS.value, "
            "slot_words(members.size) // words\n",
            "            config.comm_sms, -(-tiles // workers) * pieces, EPOCH_WORDS.value\n",
            "def launch_plan",
            "test_protocol and all_reduce",
        ),
        Defect(
            'unseen: ccl: under "ll" a member with a strided private tensor counts its tiles in two '
            "dimensions, the others as one run",
            "ccl/kernel_launch.py",
            "    if one_run or (runs and flagged):\n"
            "        # Words are identified by their numbers, so all members must have the same "
            "elements in a tile.\n"
            "        tiles_m, tiles_n = 1, tiles\n"
            "    if one_run:\n",
            "    if one_run:\n        tiles_m, tiles_n = 1, tiles\n",
            "def launch_plan",
            "test_own_strides and all_gather",
        ),
        Defect(
            "unseen: ccl: the ring's flag area is sized in words where bytes are meant, so flags of "
            "programs from 256 on are data",
            "ccl/workspace.py",
            "FLAG_BYTES = MAX_PROGRAMS.value * 4",
            "FLAG_BYTES = MAX_PROGRAMS.value",
            "",
            "test_alternating and ring",
        ),
        Defect(
            "unseen: ccl: a workspace keeps the memory that it got first, although the group's memory has grown since",
            "ccl/workspace.py",
            "        if self.num_bytes:\n            self._scratch",
            "        if self.num_bytes and self._scratch is None:\n            self._scratch",
            "def scratch",
            "test_workspace and ring",
        ),
        Defect(
            "unseen: ccl: in-place one_shot is recognised by identity of the tensor objects, not of their memory",
            "ccl/plans.py",
            "    output, source = _as_words(output, plan), _as_words(source, plan)\n"
            "    in_place = output is not None and source is not None and same_memory(output, source)\n",
            "    in_place = source is not None and output is source\n"
            "    output, source = _as_words(output, plan), _as_words(source, plan)\n",
            "def prepare_move",
            "test_queued and all_reduce",
        ),
        Defect(
            "unseen: ccl: a member's own rows are found by its global rank, not by its place in the group",
            "ccl/plans.py",
            "    start = members.rank * rows\n",
            "    start = members.ranks[members.rank] * rows\n",
            "def _check_apart",
            "test_refused and all_gather",
        ),
        Defect(
            "unseen: ccl: the tile that replaces the default in Gluon kernels is written into the caller's Config",
            "ccl/plans.py",
            "    block_m, block_n = _FLAT_TILE if config.use_gluon and tile == _DEFAULT_TILE and not owned else tile\n",
            "    block_m, block_n = _FLAT_TILE if config.use_gluon and tile == _DEFAULT_TILE and not "
            "owned else tile\n"
            "    # So that the members compare, and messages show, the tile in effect.\n"
            "    config.block_size_m, config.block_size_n = block_m, block_n\n",
            "def check_tile",
            "test_operations and test_all_gather",
        ),
        Defect(
            "unseen: ccl: arguments that the members once agreed on are not compared again",
            "ccl/call.py",
            "def _agreed(op: str, members: Members, prepare: Callable[[Members], tuple[str, "
            "Launch]]) -> Launch:\n"
            '    """Return the launch of ``prepare``, after all members have passed the same '
            'arguments."""\n'
            '    arguments, error = "", None\n'
            "    launch: Launch | None = None\n"
            "    try:\n"
            "        arguments, launch = prepare(members)\n"
            "    except Exception as failure:  # noqa: BLE001 - raised below, after the other "
            "members have been notified\n"
            "        error = failure\n"
            "    rows = exchange([error is not None, zlib.crc32(arguments.encode())], members.group, "
            "op)\n"
            "    if error is not None:\n"
            "        raise error\n"
            "    failed = [members.ranks[place] for place, (bad, _) in enumerate(rows) if bad]\n"
            "    if failed:\n"
            '        raise RuntimeError(f"{op} failed on ranks {failed}")\n'
            "    if len({crc for _, crc in rows}) > 1:\n"
            "        passed: list[Any] = [None] * len(rows)\n"
            "        dist.all_gather_object(passed, arguments, group=members.group)\n"
            "        raise ValueError(\n"
            '            f"{op}: every member must pass the same arguments, got '
            '{dict(zip(members.ranks, passed, strict=True))}"\n'
            "        )\n",
            "_settled: set[tuple[str, tuple[int, ...], str]] = set()\n"
            '"""Calls on whose arguments the members have agreed: repeating one needs no message '
            'between hosts."""\n'
            "\n"
            "\n"
            "def _agreed(op: str, members: Members, prepare: Callable[[Members], tuple[str, "
            "Launch]]) -> Launch:\n"
            '    """Return the launch of ``prepare``, after all members have passed the same '
            'arguments."""\n'
            '    arguments, error = "", None\n'
            "    launch: Launch | None = None\n"
            "    try:\n"
            "        arguments, launch = prepare(members)\n"
            "    except Exception as failure:  # noqa: BLE001 - raised below, after the other "
            "members have been notified\n"
            "        error = failure\n"
            "    if launch is not None and (op, members.ranks, arguments) in _settled:\n"
            "        return launch\n"
            "    rows = exchange([error is not None, zlib.crc32(arguments.encode())], members.group, "
            "op)\n"
            "    if error is not None:\n"
            "        raise error\n"
            "    failed = [members.ranks[place] for place, (bad, _) in enumerate(rows) if bad]\n"
            "    if failed:\n"
            '        raise RuntimeError(f"{op} failed on ranks {failed}")\n'
            "    if len({crc for _, crc in rows}) > 1:\n"
            "        passed: list[Any] = [None] * len(rows)\n"
            "        dist.all_gather_object(passed, arguments, group=members.group)\n"
            "        raise ValueError(\n"
            '            f"{op}: every member must pass the same arguments, got '
            '{dict(zip(members.ranks, passed, strict=True))}"\n'
            "        )\n"
            "    _settled.add((op, members.ranks, arguments))\n",
            "def symmetric_offset",
            "test_one_alone_is_refused and all_gather",
        ),
        Defect(
            "unseen: ccl: the last 16 async calls are kept, with their tensors and the instance",
            "ccl/call.py",
            "Launch = Callable[[], None]\n"
            "\n"
            "\n"
            "def run(\n"
            "    op: str,\n"
            "    ctx: Instance,\n"
            "    group: dist.ProcessGroup | None,\n"
            "    async_op: bool,\n"
            "    prepare: Callable[[Members], tuple[str, Launch]],\n"
            ") -> Work | None:\n"
            '    """Run one call of ``op``.\n'
            "\n"
            "    ``prepare`` checks the arguments, without waiting for other members. It returns the "
            "arguments that all members must\n"
            "    pass alike, as text, and a function that launches the kernel.\n"
            "\n"
            "    Without ``async_op`` the members compare their arguments on the host before any of "
            "them launches, and this rank\n"
            "    waits for its stream afterwards. With ``async_op`` there is no message on the host: "
            "a member that raises does not\n"
            "    take part, and the devices of the others wait for it.\n"
            "\n"
            "    Raises:\n"
            "        RuntimeError: this rank is not in the group; another member's ``prepare`` "
            "raised, or that member is at another\n"
            "            call; a graph is being captured, without ``async_op``.\n"
            "        ValueError: the members passed different arguments; the text shows the "
            "arguments of each.\n"
            '    """\n'
            "    members = ctx.members(group)\n"
            "    device = ctx.get_device()\n"
            "    if async_op:\n"
            "        _, launch = prepare(members)\n"
            "        launch()\n"
            "        return Work(device)\n",
            "Launch = Callable[[], None]\n"
            "_in_flight: list[Callable[..., object]] = []\n"
            '"""The latest calls with ``async_op``: they hold their tensors, which devices may still '
            'access."""\n'
            "\n"
            "\n"
            "def run(\n"
            "    op: str,\n"
            "    ctx: Instance,\n"
            "    group: dist.ProcessGroup | None,\n"
            "    async_op: bool,\n"
            "    prepare: Callable[[Members], tuple[str, Launch]],\n"
            ") -> Work | None:\n"
            '    """Run one call of ``op``.\n'
            "\n"
            "    ``prepare`` checks the arguments, without waiting for other members. It returns the "
            "arguments that all members must\n"
            "    pass alike, as text, and a function that launches the kernel.\n"
            "\n"
            "    Without ``async_op`` the members compare their arguments on the host before any of "
            "them launches, and this rank\n"
            "    waits for its stream afterwards. With ``async_op`` there is no message on the host: "
            "a member that raises does not\n"
            "    take part, and the devices of the others wait for it.\n"
            "\n"
            "    Raises:\n"
            "        RuntimeError: this rank is not in the group; another member's ``prepare`` "
            "raised, or that member is at another\n"
            "            call; a graph is being captured, without ``async_op``.\n"
            "        ValueError: the members passed different arguments; the text shows the "
            "arguments of each.\n"
            '    """\n'
            "    members = ctx.members(group)\n"
            "    device = ctx.get_device()\n"
            "    if async_op:\n"
            "        _, launch = prepare(members)\n"
            "        launch()\n"
            "        _in_flight.append(prepare)\n"
            "        del _in_flight[:-16]\n"
            "        return Work(device)\n",
            "__all__",
            "test_life_cycles",
        ),
        Defect(
            "unseen: ccl: a byte message in narrow tiles moves almost nothing: the least tile is 8 "
            "columns, half a vector of bytes",
            "ccl/send_recv.py",
            "_LEAST_TILE = 16\n",
            "_LEAST_TILE = 8\n",
            "",
            "test_send_recv and test_ragged and int8",
        ),
        Defect(
            "unseen: ccl: a message whose config is refused no longer notifies the other side",
            "ccl/send_recv.py",
            "        _check_tensors(op, ctx, source, target)\n"
            "        chosen, tile = _tile(config, source if source is not None else target, ctx)\n"
            "    except Exception:\n"
            "        if not async_op:\n"
            "            # The other side would wait for this one.\n"
            "            launch(None, None, *_tile(Config(), None, ctx))\n"
            "        raise\n",
            "        _check_tensors(op, ctx, source, target)\n"
            "    except Exception:\n"
            "        if not async_op:\n"
            "            # The other side would wait for this one.\n"
            "            launch(None, None, *_tile(Config(), None, ctx))\n"
            "        raise\n"
            "    chosen, tile = _tile(config, source if source is not None else target, ctx)\n",
            "def _exchanged",
            "test_send_recv and test_refused",
        ),
    ]
