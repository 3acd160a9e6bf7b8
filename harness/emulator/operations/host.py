"""Messages of a kernel to the host, and traps. Source: LLVM AMDGPUUsage, "Trap Handler ABI" and s_sendmsg."""

from __future__ import annotations

import re

from harness.emulator.faults import DeviceAssert, KernelTrap, UnimplementedInstruction
from harness.emulator.operations.table import instruction

# llvm.debugtrap: without a debugger the wavefront continues.
_DEBUG_TRAP = 3


@instruction("s_sendmsg", klass="other")
def send_message(instruction, context):
    """s_sendmsg: MSG_INTERRUPT rings the hostcall doorbell; the host answers before the wavefront continues."""
    message = " ".join(instruction.operands)
    if not re.fullmatch(r"sendmsg\(MSG_INTERRUPT\)|0x1|1", message):
        raise UnimplementedInstruction(f"message {message} is not implemented: only MSG_INTERRUPT is")

    def step(wf):
        if wf.chunk.launch.hostcall is not None:
            wf.chunk.launch.hostcall.serve()

    return step


@instruction("s_trap", klass="other")
def trap(instruction, context):
    """s_trap: 2 is llvm.trap, with which a failed device_assert ends; 3 is llvm.debugtrap."""
    if int(instruction.operands[0], 0) == _DEBUG_TRAP:
        return None

    def step(wf):
        lane = int(wf.exec_mask[0].argmax())
        hostcall = wf.chunk.launch.hostcall
        if hostcall is not None and hostcall.assertion:
            text, printed = hostcall.assertion.strip(), [line.strip() for line in hostcall.printed]
            message = f"{text} (printed before: {'; '.join(printed)})" if printed else text
            wf.chunk.raise_fault(message, wf, instruction, lane, DeviceAssert, assertion=text, printed=printed)
        wf.chunk.raise_fault(f"{instruction.text} was executed", wf, instruction, lane, KernelTrap)

    return step


@instruction("s_sethalt", klass="other")
def halt(instruction, context):
    """s_sethalt: 1 stops the wavefront until a debugger resumes it, so here for ever."""
    if int(instruction.operands[0], 0) & 1 == 0:
        return None

    def step(wf):
        wf.chunk.raise_fault("the wavefront halted for ever", wf, instruction, 0, KernelTrap)

    return step
