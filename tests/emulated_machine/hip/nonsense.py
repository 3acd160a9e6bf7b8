"""Call every function of HIP that the machine has with nonsense, in a process on the emulated machine.

The process prints each call before it makes it, so that the last line names the call of a crash.
"""

import ctypes
import random
import sys

from harness.emulated_machine.hip import calls

hip = ctypes.CDLL("libamdhip64.so")
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
    for name in sorted(set(calls.CALLS) - set(calls.refused())):
        if name in CALLBACKS:
            continue
        for _ in range(ROUNDS):
            arguments = [chosen.choice(nonsense) for _ in range(6)]
            print(name, *map(hex, arguments), flush=True)
            getattr(hip, name)(*map(word, arguments))
    print("passed")


if __name__ == "__main__":
    main()
