"""Host side of device_print and device_assert: kernels request a service from the host and wait for the answer.

The protocol is read off the compiled code. The hidden argument ``hidden_hostcall_buffer`` (LLVM AMDGPUUsage) points to
a header: the addresses of the packet headers and the payloads, a doorbell signal, the tops of two stacks of packets
(free and ready) and a mask that extracts a packet's number from its name. A wavefront pops a free packet, writes its
EXEC, a service number and 64 bytes for each lane, pushes the packet on the ready stack, rings the doorbell with
``s_sendmsg sendmsg(MSG_INTERRUPT)`` and polls the packet's control word. The answer is in each lane's first words.

Service 2 is printf. The first word of a lane is a descriptor: bit 0 begins a message, bit 1 ends it, bits 5 to 7 count
the words of data that follow, bits 8 and up hold the message's name, which the host assigns in its answer to the first
packet. The data are a word that is 1 for stderr, the format padded with zeros to whole words, and the arguments.
"""

from __future__ import annotations

import re
import struct
import sys
from collections import deque
from collections.abc import Callable

import numpy as np

from harness.emulator.faults import UnimplementedInstruction

PRINTF = 2
_LANES = 64
_HEADER, _SIGNAL, _MAILBOX, _PACKET, _PAYLOAD = 48, 64, 8, 24, 64 * _LANES
_BEGIN, _END, _STDERR = 1, 2, 1
_KEPT = 16


class Hostcall:
    """Hostcall buffer of a launch and its service; up to ``waves`` wavefronts may wait at once.

    ``write`` receives the printed text, by default ``sys.stdout`` does; ``printed`` holds the last distinct texts.
    ``assertion`` is the text that the kernel last wrote to stderr: the message of a device_assert. It is not printed,
    because the ``s_trap`` that follows raises it.
    """

    def __init__(self, waves: int, write: Callable[[str], object] | None = None) -> None:
        self.write = write or _print
        self.assertion = ""
        self.printed: deque[str] = deque(maxlen=_KEPT)
        # Called after the host has written to the buffer: for a watched mode with its own model of memory.
        self.answered: Callable[[], None] = lambda: None
        self._messages: dict[int, list[int]] = {}
        self._last = 0
        packets = 1 << max(1, waves).bit_length()
        headers = _HEADER + _SIGNAL + _MAILBOX
        payloads = headers + _PACKET * packets
        self.memory = np.zeros(payloads + _PAYLOAD * packets, np.uint8)
        self.address: int = self.memory.ctypes.data
        self._headers = self.memory[headers:payloads].view(np.uint64).reshape(packets, 3)
        self._payloads = self.memory[payloads:].view(np.uint64).reshape(packets, _LANES, 8)
        self._control = self.memory[headers:payloads].view(np.uint32).reshape(packets, 6)[:, 5]
        # A packet's name is its number plus a multiple of the packet count, so that 0 can mean "none".
        self._headers[:, 0] = packets + np.arange(1, packets + 1)
        self._headers[-1, 0] = 0
        signal, self._mask = self.address + _HEADER, packets - 1
        self._top = self.memory[:_HEADER].view(np.uint64)
        self._top[:] = [self.address + headers, self.address + payloads, signal, packets, 0, self._mask]
        self.memory[_HEADER : _HEADER + _SIGNAL].view(np.uint64)[2:4] = [signal + _SIGNAL, 0]

    def holds(self, addresses: np.ndarray) -> bool:
        """Return which of these addresses (uint64) lie in the buffer."""
        return bool(((addresses - np.uint64(self.address)) < self.memory.nbytes).all())

    def serve(self) -> None:
        """Answer every packet on the ready stack, the oldest first."""
        name, self._top[4] = int(self._top[4]), 0
        ready = []
        while name:
            ready.append(name & self._mask)
            name = int(self._headers[ready[-1], 0])
        for packet in reversed(ready):
            active, service = int(self._headers[packet, 1]), int(self._headers[packet, 2]) & 0xFFFFFFFF
            if service != PRINTF:
                raise UnimplementedInstruction(
                    f"a kernel requests hostcall service {service}; the emulator has only service 2 (printf)"
                )
            for lane in range(_LANES):
                if active >> lane & 1:
                    words = self._payloads[packet, lane]
                    words[0] = self._append(int(words[0]), words[1:].tolist())
            self._control[packet] &= ~np.uint32(1)
        self.answered()

    def _append(self, descriptor: int, words: list[int]) -> int:
        """Process one lane's packet and return the descriptor for its next packet."""
        if descriptor & _BEGIN:
            self._last += 1
            descriptor = self._last << 8
            self._messages[self._last] = [words[0]]
            return descriptor
        message = self._messages[descriptor >> 8]
        message += words[: descriptor >> 5 & 7]
        if descriptor & _END:
            del self._messages[descriptor >> 8]
            text = formatted(struct.pack(f"<{len(message) - 1}Q", *message[1:]))
            if message[0] & _STDERR:
                self.assertion = text
            else:
                self.write(text)
                if text not in self.printed:
                    self.printed.append(text)
        return descriptor & ~_END


_CONVERSION = re.compile(rb"%([-+ #0]*)(\d*)(?:\.(\d+))?(hh|h|ll|l|j|z|t)?([diouxXeEfFgGaAcsp%])")


def formatted(data: bytes) -> str:
    """Format ``data`` as C's printf would: the format string and then the arguments, each padded to 8 bytes."""
    form, data = _string(data)
    out, end = [], 0
    for match in _CONVERSION.finditer(form):
        out.append(form[end : match.start()].decode())
        end = match.end()
        flags, width, precision, length, kind = (part.decode() if part else "" for part in match.groups())
        if kind == "%":
            out.append("%")
            continue
        if kind == "s":
            string, data = _string(data)
            value: object = string.decode()
        else:
            word, data = data[:8], data[8:]
            value = _argument(word, length, kind)
        if kind in "pu":
            kind = {"p": "s", "u": "d"}[kind]
        out.append(f"%{flags}{width}{'.' + precision if precision else ''}{kind}" % value)
    out.append(form[end:].decode())
    return "".join(out)


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Split off a string padded with zeros to whole words; return it and the rest."""
    length = data.find(b"\0") if b"\0" in data else len(data)
    return data[:length], data[length // 8 * 8 + 8 :]


def _argument(word: bytes, length: str, kind: str) -> object:
    if kind in "eEfFgGaA":
        value = struct.unpack("<d", word)[0]
        return value.hex() if kind in "aA" else value
    bits = {"hh": 8, "h": 16, "": 32}.get(length, 64)
    value = int.from_bytes(word, "little")
    if kind == "p":
        return hex(value) if value else "(nil)"
    if kind == "c":
        return chr(value & 0xFF)
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind in "di" and value >> bits - 1 else value


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
