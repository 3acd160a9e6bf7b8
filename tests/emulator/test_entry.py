"""State of a kernel at entry: SGPRs in order, work-item ids, the dispatch packet, hidden arguments."""

import ctypes
import struct

import numpy as np
import pytest

from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.program.decode import decode
from harness.emulator.wavefront import entry
from tests.emulator.single import listing

USER = {"dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2, "dispatch_id": 2, "private_segment_size": 1}


def launched(directives, grid=(1, 1, 1), waves=1, lds=0, private=0):
    text = listing("s_endpgm", private=private)
    text = text.replace("\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 0\n", "").replace(
        "\t\t.amdhsa_user_sgpr_count 0\n", ""
    )
    lines = "".join(f"\t\t.amdhsa_{name} {value}\n" for name, value in directives.items())
    kernarg = np.arange(64, dtype=np.uint32).view(np.uint8)
    program = decode(text.replace("\t.end_amdhsa_kernel", lines + "\t.end_amdhsa_kernel"))
    launch = Launch(program, grid, waves, lds, kernarg, Allocations())
    return launch, launch.start(0, grid[0] * grid[1] * grid[2]).wavefronts


def words64(wf, register):
    return int(wf.s[0, register]) | int(wf.s[0, register + 1]) << 32


@pytest.mark.parametrize(
    "chosen", [("kernarg_segment_ptr",), tuple(USER), ("dispatch_ptr", "private_segment_size"), ()]
)
def test_user_registers_in_order(chosen):
    count = sum(USER[name] for name in chosen)
    launch, wf = launched(
        {**{f"user_sgpr_{name}": 1 for name in chosen}, "user_sgpr_count": count}, grid=(3, 1, 1), private=48
    )
    at = 0
    for name, width in USER.items():
        if name not in chosen:
            continue
        value = words64(wf, at) if width == 2 else int(wf.s[0, at])
        if name == "dispatch_ptr":
            assert ctypes.string_at(value, 64) == entry.dispatch_packet(launch.dispatch).tobytes()
            assert launch.table.nearest(value).startswith("inside the dispatch packet")
        elif name == "queue_ptr":
            assert struct.unpack("<II", ctypes.string_at(value + 64, 8)) == (
                entry.SHARED_APERTURE,
                entry.PRIVATE_APERTURE,
            )
        else:
            wanted = {"kernarg_segment_ptr": launch.kernarg_address, "dispatch_id": 0, "private_segment_size": 48}
            assert value == wanted[name]
        at += width
    assert wf.s[:, at].tolist() == [0, 1, 2]  # the work-group's x follows them


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (3, 4), (0, 0)])
def test_preloaded_arguments_follow_the_kernarg_pointer(offset, length):
    launch, wf = launched(
        {
            "user_sgpr_kernarg_segment_ptr": 1,
            "user_sgpr_kernarg_preload_length": length,
            "user_sgpr_kernarg_preload_offset": offset,
            "user_sgpr_count": 2 + length,
        }
    )
    assert words64(wf, 0) == launch.kernarg_address
    assert wf.s[0, 2 : 2 + length].tolist() == list(range(offset, offset + length))


@pytest.mark.parametrize("axes", ["x", "xy", "xyz", "z", "yz"])
def test_work_group_ids_take_a_register_each(axes):
    directives = {f"system_sgpr_workgroup_id_{axis}": int(axis in axes) for axis in "xyz"}
    _, wf = launched({"user_sgpr_count": 5, **directives, "system_sgpr_workgroup_info": 1}, grid=(2, 3, 4), waves=2)
    for wave in range(48):
        group = wave // 2
        ids = {"x": group % 2, "y": group // 2 % 3, "z": group // 6}
        info = 2 | (wave % 2 == 0) << 31
        assert wf.s[wave, 5 : 6 + len(axes)].tolist() == [*(ids[axis] for axis in axes), info]


@pytest.mark.parametrize("waves", [1, 3, 16])
def test_work_items_are_numbered_through_the_work_group(waves):
    _, wf = launched({"user_sgpr_count": 0}, grid=(2, 1, 1), waves=waves)
    assert wf.v[0, :, :, 0].reshape(2, -1).tolist() == [list(range(64 * waves))] * 2
    assert wf.exec_all


def test_the_dispatch_packet():
    packet = entry.dispatch_packet(entry.Dispatch((5, 6, 7), 4, 1000, 24, 0x1234567890))
    fields = struct.unpack("<6H5I4Q", packet.tobytes())
    header, dimensions, x, y, z = fields[:5]
    grid_x, grid_y, grid_z, private, lds = fields[6:11]
    kernarg, completion = fields[12], fields[14]
    assert (header & 0xFF, dimensions) == (2, 3)  # a kernel dispatch
    assert (x, y, z) == (256, 1, 1)
    assert (grid_x, grid_y, grid_z) == (5 * 256, 6, 7)  # in work-items
    assert (private, lds, kernarg, completion) == (24, 1000, 0x1234567890, 0)


def test_hidden_arguments():
    dispatch = entry.Dispatch((5, 6, 1), 4, 1000, 24, 0, hostcall=77)
    wanted = {
        "block_count_x": 5, "block_count_y": 6, "block_count_z": 1, "group_size_x": 256, "group_size_y": 1,
        "group_size_z": 1, "remainder_x": 0, "remainder_y": 0, "remainder_z": 0, "global_offset_x": 0, "grid_dims": 2,
        "printf_buffer": 0, "hostcall_buffer": 77, "multigrid_sync_arg": 0, "heap_v1": 0, "default_queue": 0,
        "completion_action": 0, "dynamic_lds_size": 1000, "private_base": entry.PRIVATE_APERTURE,
        "shared_base": entry.SHARED_APERTURE, "queue_ptr": 99, "none": 0,
    }  # fmt: skip
    assert {kind: entry.hidden_argument(kind, dispatch, 99) for kind in wanted} == wanted
    assert entry.hidden_argument("grid_dims", dispatch._replace(grid=(1, 1, 2)), 0) == 3
    assert entry.hidden_argument("grid_dims", dispatch._replace(grid=(9, 1, 1)), 0) == 1
