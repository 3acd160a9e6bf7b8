"""What a kernel says to the host: messages and traps. Source: LLVM AMDGPUUsage, "Trap Handler ABI" and s_sendmsg."""

from __future__ import annotations

import re

from harness.emulator.faults import DeviceAssert, KernelTrap, UnimplementedInstruction
from harness.emulator.ops.table import instruction

# llvm.debugtrap: without a debugger the wavefront goes on.
_DEBUG_TRAP = 3


@instruction("s_sendmsg", klass="other")
def send_message(instruction, context):
    """MSG_INTERRUPT rings the doorbell of the hostcall buffer: the host answers before the wavefront goes on."""
    message = " ".join(instruction.operands)
    if not re.fullmatch(r"sendmsg\(MSG_INTERRUPT\)|0x1|1", message):
        raise UnimplementedInstruction(f"message {message}: a compute kernel sends MSG_INTERRUPT alone")

    def step(wf):
        if wf.chunk.launch.hostcall is not None:
            wf.chunk.launch.hostcall.serve()

    return step


@instruction("s_trap", klass="other")
def trap(instruction, context):
    """2 is llvm.trap, with which a failed device_assert ends; 3 llvm.debugtrap."""
    if int(instruction.operands[0], 0) == _DEBUG_TRAP:
        return None

    def step(wf):
        lane = int(wf.exec_mask[0].argmax())
        hostcall = wf.chunk.launch.hostcall
        if hostcall is not None and hostcall.assertion:
            text, printed = hostcall.assertion.strip(), [line.strip() for line in hostcall.printed]
            said = f"{text} (printed before: {'; '.join(printed)})" if printed else text
            wf.chunk.raise_fault(said, wf, instruction, lane, DeviceAssert, assertion=text, printed=printed)
        wf.chunk.raise_fault(f"{instruction.text} was executed", wf, instruction, lane, KernelTrap)

    return step


@instruction("s_sethalt", klass="other")
def halt(instruction, context):
    """1 stops the wavefront until a debugger lets it go on: here nobody will."""
    if int(instruction.operands[0], 0) & 1 == 0:
        return None

    def step(wf):
        wf.chunk.raise_fault("the wavefront halted for ever", wf, instruction, 0, KernelTrap)

    return step
