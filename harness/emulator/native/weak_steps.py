"""Native functions of the instructions that mode ``weak`` executes itself, for translated code; see ``native.steps``.

Each returns 1 without an effect if Python has to execute the instruction, because it faults.
"""

from __future__ import annotations

from harness.emulator.native import issuing, queues, record
from harness.emulator.native.execute import Function
from harness.emulator.native.raw import get64, put64
from harness.emulator.native.weak_state import add, ask, helper

# A work-group: wavefronts that have not ended, those at a barrier, its compute unit or 0, its slot, the records of
# those at the barrier in the order of their arrival.
(LIVE, ARRIVED, UNIT, SLOT, AT_BARRIER) = range(0, 40, 8)


@helper
def flight_of(wave):
    """Return the flight of a wavefront. Work-group i has a compute unit of its own, on XCD i modulo their number."""
    flight = get64(wave + record.FLIGHT)
    if flight == 0:
        state, launch = get64(wave + record.MODEL), get64(wave + record.LAUNCH)
        group, number = get64(wave + record.GROUP), get64(wave + record.NUMBER)
        if get64(group + UNIT) == 0:
            xcd = number // get64(launch + issuing.PER_GROUP) % get64(launch + issuing.XCDS)
            agent, begun = get64(launch + issuing.AGENT), get64(launch + issuing.BEGUN)
            put64(group + UNIT, ask(state, issuing.NEW_UNIT, agent, xcd, begun, 0))
        name = get64(launch + issuing.NAME) << 32 | number
        flight = ask(state, issuing.NEW_FLIGHT, get64(group + UNIT), wave, name, 0)
        put64(wave + record.FLIGHT, flight)
    return flight


@Function
def access(wave, p):
    """Issue a global access. Parameter: its description, see ``native.issuing``."""
    launch, described = get64(wave + record.LAUNCH), get64(p)
    if ask(get64(wave + record.MODEL), issuing.ISSUE, flight_of(wave), described, launch, 0) >= 0:
        return 0
    add(get64(launch + issuing.EXECUTIONS) + 8 * get64(described + issuing.SITE), -1)  # Python counts it
    return 1


@Function
def fence(wave, p):
    """Parameters: kind, scope and instruction."""
    ask(get64(wave + record.MODEL), issuing.FENCE, flight_of(wave), get64(p), get64(p + 8), get64(p + 16))
    return 0


@Function
def wait(wave, p):
    """s_waitcnt. Parameters: how many global accesses, and how many LDS accesses and scalar loads, may be in flight."""
    state = get64(wave + record.MODEL)
    queues.settle(state, wave, get64(p + 8))
    put64(wave + record.BLOCKED, ask(state, issuing.WAIT, flight_of(wave), get64(p), 0, 0) > 1)
    return 0


@Function
def local(wave, p):
    """Issue an LDS access or a scalar load. Parameter: its description, see ``native.queues``."""
    queues.append(get64(wave + record.MODEL), wave, get64(p), 0)
    return 0
