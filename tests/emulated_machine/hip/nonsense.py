"""Call every function of HIP that the machine has with nonsense, in a process on the emulated machine.

The process prints each call before it makes it, so that the last line names the call of a crash.
"""

import ctypes
import mmap
import os
import random
import sys

from harness.emulated_machine.hip import calls
from tests.emulated_machine.hip.answers import Pages
from tests.emulated_machine.hip.programs import Handle, hip

CALLBACKS = {"hipStreamAddCallback", "hipLaunchHostFunc"}
"""They call the function at the address that they are given."""
ROUNDS = 60


def word(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value % (1 << 64))


def main() -> None:
    chosen = random.Random(int(sys.argv[1]))
    buffer = ctypes.create_string_buffer(1 << 16)
    live, freed = ctypes.c_void_p(), ctypes.c_void_p()
    for pointer in (live, freed):
        assert hip.hipMalloc(ctypes.byref(pointer), word(4096)) == 0
    assert hip.hipFree(freed) == 0
    nonsense = [0, 0, 1, 2, 8, 16, 4096, -1, -4096, 1 << 62, live.value, live.value + 3, freed.value]
    nonsense += [ctypes.addressof(buffer), ctypes.addressof(buffer) + 1]
    for permission in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
        pages = Pages(permission)
        nonsense += [pages.address, pages.end - 1, pages.end - 8, pages.end]
    products = set(calls.MATRIX_PRODUCTS) - set(calls.refused(calls.MATRIX_PRODUCTS))
    for name in sorted((set(calls.CALLS) - set(calls.refused())) | products):
        if name in CALLBACKS:
            continue
        for _ in range(ROUNDS):
            arguments = [chosen.choice(nonsense) for _ in range(16 if name in products else 6)]
            print(name, *map(hex, arguments), flush=True)
            getattr(hip, name)(*map(word, arguments))
    open_damaged_handles(chosen)
    print("passed")


def open_damaged_handles(chosen: random.Random) -> None:
    """Open IPC handles with wrong bytes, as if another process had made them."""
    pointer, opened, handle = ctypes.c_void_p(), ctypes.c_void_p(), Handle()
    assert hip.hipMalloc(ctypes.byref(pointer), word(4096)) == 0
    assert hip.hipIpcGetMemHandle(ctypes.byref(handle), pointer) == 0
    right = bytes(handle)
    own = os.getpid().to_bytes(4, "little")
    process = right.index(own, 48)
    for round_ in range(300):
        wrong = bytearray(right if round_ % 3 else chosen.randbytes(64))
        wrong[process : process + 4] = chosen.choice([own, bytes(4), b"\xff" * 4, os.getppid().to_bytes(4, "little")])
        for place in chosen.sample(range(64), chosen.randrange(4)):
            wrong[place] = chosen.choice([0, 1, 127, 255])
        print("hipIpcOpenMemHandle", wrong.hex(), flush=True)
        assert hip.hipIpcOpenMemHandle(ctypes.byref(opened), Handle.from_buffer_copy(wrong), 1) != 0


if __name__ == "__main__":
    main()
