"""Calls of functions, constants, messages to the host and traps, instruction by instruction."""

import struct

import numpy as np
import pytest

from harness.emulator import DeviceAssert, KernelTrap, ListingError, MemoryFault, UnimplementedInstruction
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.hostcall import Hostcall, formatted
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.parser import parse
from harness.emulator.program.decode import decode
from tests.emulator.covering import covers
from tests.emulator.single import execute, listing, program

LANES = list(range(64))


def run(text, waves=1, groups=1, memory=(), hostcall=None):
    launch = Launch(decode(text), (groups, 1, 1), waves, 0, np.zeros(8, np.uint8), Allocations(), memory)
    launch.hostcall = hostcall
    Scheduler([[launch]]).run()


def call(register, function):
    low, high = register, register + 1
    return [
        f"s_getpc_b64 s[{low}:{high}]",
        f"s_add_u32 s{low}, s{low}, {function}@rel32@lo+4",
        f"s_addc_u32 s{high}, s{high}, {function}@rel32@hi+12",
    ]


def function(name, *lines):
    return "\n".join([f"\t.type\t{name},@function", f"{name}:", *("\t" + line for line in lines), ".Lfunc_end1:", ""])


def with_functions(code, *functions, before=False):
    """Return a listing of the kernel and the functions that it calls, which may precede or follow it."""
    text = listing(*code)
    return text.replace("\nprobe:", "\n" + "".join(functions) + "probe:") if before else text + "".join(functions)


# -- calls -------------------------------------------------------------------------------------------------------------


@covers("s_getpc_b64 s_swappc_b64 s_setpc_b64")
@pytest.mark.parametrize("before", [True, False], ids=["function first", "kernel first"])
def test_functions_are_called_and_return(before):
    """``twice`` calls ``add_one`` two times, from two places; the kernel calls ``twice``, then ``add_one``."""
    out = np.zeros(2, np.uint32)
    add_one = function("add_one", "v_add_u32_e32 v0, 1, v0", "s_setpc_b64 s[30:31]")
    twice = function(
        "twice", "s_mov_b64 s[34:35], s[30:31]", *call(4, "add_one"), "s_swappc_b64 s[30:31], s[4:5]",
        *call(4, "add_one"), "s_swappc_b64 s[30:31], s[4:5]", "s_setpc_b64 s[34:35]",
    )  # fmt: skip
    address = out.ctypes.data
    code = [
        "v_mov_b32_e32 v0, 40", *call(0, "twice"), "s_swappc_b64 s[30:31], s[0:1]", "v_mov_b32_e32 v4, v0",
        *call(0, "add_one"), "s_swappc_b64 s[30:31], s[0:1]", "v_mov_b32_e32 v5, v0",
        f"v_mov_b32_e32 v2, {address & 0xFFFFFFFF:#x}", f"v_mov_b32_e32 v3, {address >> 32:#x}",
        "global_store_dwordx2 v[2:3], v[4:5], off", "s_endpgm",
    ]  # fmt: skip
    run(with_functions(code, add_one, twice, before=before), memory=[(address, 8, "out")])
    assert out.tolist() == [42, 43]


def test_wavefronts_that_call_from_different_places_return_there():
    """Two wavefronts reconverge in a function, are executed as one array, and diverge when it returns."""
    out = np.zeros(2, np.uint32)
    address = out.ctypes.data
    code = [
        "v_readfirstlane_b32 s4, v0", "v_mov_b32_e32 v8, 5", "s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 .LBB0_1",
        *call(0, "square"), "s_swappc_b64 s[30:31], s[0:1]", "v_mov_b32_e32 v9, 4", "s_branch .LBB0_2", ".LBB0_1:",
        *call(0, "square"), "s_swappc_b64 s[30:31], s[0:1]", "v_mov_b32_e32 v9, 0", ".LBB0_2:",
        f"v_add_u32_e32 v2, {address & 0xFFFFFFFF:#x}, v9", f"v_mov_b32_e32 v3, {address >> 32:#x}",
        "s_nop 0", "v_add_u32_e32 v8, v8, v9", "global_store_dword v[2:3], v8, off", "s_endpgm",
    ]  # fmt: skip
    square = function("square", "v_mul_lo_u32 v8, v8, v8", "s_setpc_b64 s[30:31]")
    assert address % 8 == 0
    run(with_functions(code, square), waves=2, memory=[(address, 8, "out")])
    assert out.tolist() == [25, 29]


@covers("s_call_b64")
def test_a_label_is_called():
    out = np.zeros(1, np.uint32)
    address = out.ctypes.data
    code = [
        "v_mov_b32_e32 v4, 5", "s_call_b64 s[30:31], .LBB0_1", "v_add_u32_e32 v4, 1, v4",
        f"v_mov_b32_e32 v2, {address & 0xFFFFFFFF:#x}", f"v_mov_b32_e32 v3, {address >> 32:#x}",
        "global_store_dword v[2:3], v4, off", "s_endpgm", ".LBB0_1:", "v_mul_lo_u32 v4, v4, v4", "s_setpc_b64 s[30:31]",
    ]  # fmt: skip
    run(listing(*code), memory=[(address, 4, "out")])
    assert out.tolist() == [26]
    with pytest.raises(ListingError, match="unknown label"):
        decode(listing("s_call_b64 s[30:31], .LBB0_7", "s_endpgm"))


def test_a_jump_to_where_no_code_is():
    with pytest.raises(MemoryFault, match="jump to 0x1234, where the kernel has no code"):
        run(listing("s_mov_b64 s[0:1], 0x1234", "s_setpc_b64 s[0:1]", "s_endpgm"))


def test_code_cannot_be_read_as_data():
    with pytest.raises(MemoryFault, match="outside every known allocation"):
        execute("s_getpc_b64 s[0:1]", "s_load_dword s4, s[0:1], 0x0")


# -- constants ---------------------------------------------------------------------------------------------------------


def test_constants_of_the_listing():
    text = listing(*call(0, "table"), "s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_load_dwordx2 s[8:9], s[0:1], 0x10",
                   *call(10, "text"), "s_load_dwordx2 s[12:13], s[10:11], 0x0", "s_endpgm")  # fmt: skip
    text += (
        "\t.section .rodata\nunused:\n\t.long 1\ntable:\n\t.byte 1, 0xff ; note\n\t.short -2\n\t.long 70000\n"
        '\t.zero 4\n\t.quad 0x1122334455667788\n\t.size table, 20\ntext:\n\t.ascii "a\\"\\000"\n\t.asciz "b;c\\n"\n'
    )
    code = decode(text)
    launch = Launch(code, (1, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations())
    wf = launch.start(0, 1).wavefronts
    for step in (step for block in code.blocks for segment in block.segments for step in segment.steps):
        step(wf)
    got = wf.s[0, 4:10].astype(np.uint32).tobytes()
    assert got[:20] == struct.pack("<BBhiIQ", 1, 0xFF, -2, 70000, 0, 0x1122334455667788)[:20]
    assert wf.s[0, 12:14].astype(np.uint32).tobytes() == b'a"\0b;c\n\0'


def test_an_unknown_symbol_is_refused():
    with pytest.raises(ListingError, match="refers to a symbol that the listing does not define"):
        parse(listing(*call(0, "nowhere"), "s_endpgm"))


# -- traps and messages ------------------------------------------------------------------------------------------------


@covers("s_sethalt")
def test_traps():
    with pytest.raises(KernelTrap, match="s_trap 2 was executed by kernel probe") as fault:
        execute("s_trap 2", exec=0xF0)
    assert fault.value.where["lane"] == 4
    assert execute("s_trap 3", "s_mov_b32 s0, 5").s(0) == [5]  # llvm.debugtrap without a debugger
    assert execute("s_sethalt 0", "s_mov_b32 s0, 5").s(0) == [5]
    with pytest.raises(KernelTrap, match="halted for ever"):
        execute("s_sethalt 1")


@covers("s_sendmsg")
def test_messages():
    assert execute("s_sendmsg sendmsg(MSG_INTERRUPT)", "s_mov_b32 s0, 5").s(0) == [5]
    with pytest.raises(UnimplementedInstruction, match="only MSG_INTERRUPT"):
        program("s_sendmsg sendmsg(MSG_GS, GS_OP_CUT, 0)")


class Device:
    """Device side of the hostcall protocol, written from the protocol and independent of the service."""

    def __init__(self, hostcall):
        self.hostcall = hostcall
        self.words = hostcall.memory.view(np.uint64)

    def at(self, address):
        return (int(address) - self.hostcall.address) // 8

    def request(self, rows, service=2, active=None):
        """Send one wavefront's packet (``rows``: up to 8 words per lane); return word 0 of each lane."""
        name = int(self.words[3])
        mask = int(self.words[5])
        header = self.at(self.words[0]) + 3 * (name & mask)
        payload = self.at(self.words[1]) + 512 * (name & mask)
        self.words[3] = self.words[header]
        self.words[header + 1] = active if active is not None else (1 << len(rows)) - 1
        self.words[header + 2] = service | 1 << 32
        for lane, row in enumerate(rows):
            self.words[payload + 8 * lane : payload + 8 * lane + len(row)] = row
        self.words[header], self.words[4] = self.words[4], name
        return name, header, payload

    def answer(self, packet):
        name, header, payload = packet
        assert int(self.words[header + 2]) >> 32 & 1 == 0
        self.words[header], self.words[3] = self.words[3], name
        return [int(self.words[payload + 8 * lane]) for lane in range(64)]

    def ask(self, rows, **more):
        packet = self.request(rows, **more)
        self.hostcall.serve()
        return self.answer(packet)


def words(data):
    data += bytes(-len(data) % 8)
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


def test_printf_by_packets():
    """A message of three packets, from two lanes; bit 0 begins, bit 1 ends, bits 5 to 7 count words."""
    printed = []
    device = Device(Hostcall(4, printed.append))
    first = device.ask([[1 | 1 << 5, 0]] * 2)
    assert first[0] != first[1]
    text = words(b"the answer of lane %i is %5.2f\n\0")
    second = device.ask([[d & ~0xE3 | len(text) << 5, *text] for d in first[:2]])
    for lane in range(2):
        row = [second[lane] & ~0xE3 | 2 << 5 | 2, lane - 1 & 0xFFFFFFFF, *words(struct.pack("<d", lane + 0.5))]
        device.ask([row] * (lane + 1), active=1 << lane)
    assert printed == ["the answer of lane -1 is  0.50\n", "the answer of lane 0 is  1.50\n"]


def test_packets_are_answered_in_the_order_they_were_sent():
    printed = []
    hostcall = Hostcall(8, printed.append)
    device = Device(hostcall)
    ids = [device.ask([[33, 0]])[0] for _ in range(8)]
    packets = [device.request([[d & ~0xE3 | 2 | 1 << 5, *words(b"%d " % n)]]) for n, d in enumerate(ids)]
    hostcall.serve()
    assert "".join(printed) == "0 1 2 3 4 5 6 7 "
    for packet in packets:
        device.answer(packet)
    for _ in range(100):  # packets are reused
        device.ask([[33, 0]])


def test_stderr_is_the_message_of_an_assert():
    printed = []
    hostcall = Hostcall(1, printed.append)
    device = Device(hostcall)
    (descriptor, *_) = device.ask([[33, 1]])
    device.ask([[descriptor & ~0xE3 | 2 | 2 << 5, *words(b"assertion x\n")]])
    assert printed == []
    assert hostcall.assertion == "assertion x\n"
    with pytest.raises(DeviceAssert, match=r"^assertion x by kernel probe, work-group .*, lane 0"):
        run(listing("s_trap 2", "s_endpgm"), hostcall=hostcall)


def test_another_service_is_refused():
    with pytest.raises(UnimplementedInstruction, match="service 3; the emulator has only service 2"):
        Device(Hostcall(1)).ask([[0]], service=3)


@pytest.mark.parametrize(
    ("form", "arguments", "text"),
    [
        ("plain\n", (), "plain\n"),
        ("100%% %d", (("q", -1),), "100% -1"),
        ("%u", (("q", -1),), "4294967295"),
        ("%lli %llu", (("q", -5), ("q", -5)), "-5 18446744073709551611"),
        ("%hhd %hd", (("q", 0x1FF), ("q", 0x1FFFF)), "-1 -1"),
        ("0x%08x %llX", (("q", 48879), ("q", 1 << 40)), "0x0000beef 10000000000"),
        ("%p %p", (("q", 0xABC), ("q", 0)), "0xabc (nil)"),
        ("%f %e %g", (("d", 1.5), ("d", 0.25), ("d", float("inf"))), "1.500000 2.500000e-01 inf"),
        ("%3d|%-3d|%+d", (("q", 7), ("q", 7), ("q", 7)), "  7|7  |+7"),
        ("%c%s", (("q", 65), ("s", "a longer string")), "Aa longer string"),
    ],
)
def test_formats(form, arguments, text):
    data = b"".join(bytes(struct.pack("<" + k, x)) if k != "s" else padded(x) for k, x in arguments)
    assert formatted(padded(form) + data) == text


def padded(text):
    data = text.encode() + b"\0"
    return data + bytes(-len(data) % 8)
