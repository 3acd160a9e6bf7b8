"""Execution of translated code in the modes ``weak`` and ``race``: wavefronts run one at a time, and may be switched at
each access.

The code is that of ``native.execute``. Which wavefront runs next, and when memory moves, are the choices of
``driver.schedule``, taken in the same order: both execute the same schedule, which tests compare. The functions get the
address of the state of a scheduler, see below. They return what Python has to do next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from harness.emulator import compilation
from harness.emulator.native import execute, issuing, race_order, race_state, record
from harness.emulator.native import weak_state as ws
from harness.emulator.native.raw import bit_count, call, get64, move, put64
from harness.emulator.native.weak_state import add, ask, helper, pick
from harness.emulator.native.weak_steps import ARRIVED, AT_BARRIER, LIVE, SLOT, UNIT

# The state, int64 each: the model's state; the table of ready wavefronts (``ENTRY_BYTES``), and their number;
# the round, the chosen period or 0, the wavefront that runs or 0, that which ran last, and that which was chosen to run
# next; the code of the launch whose work-groups start next, or 0; how many wavefronts are resident, and may be.
(MODEL, READY, COUNT, ROUND, PERIOD, CURRENT, PREVIOUS, CHOSEN, PENDING, RESIDENT, MOST_RESIDENT) = range(0, 88, 8)
# Whether only the launches change memory; whether the caller's patience is exhausted, which ends the turns of a lone
# wavefront too; whether a kernel's end is due, and whether memory has moved at the current switch already; wavefronts
# that have ended; operations until the next pause.
(CLOSED, IMPATIENT, ENDING, MOVED, ENDED, BUDGET) = range(88, 136, 8)
# In mode ``race`` not 0: starts, barriers and ends are events of ``race_state``. Whether work-groups of other launches
# start after those of ``PENDING``.
EVENTS, LATER = 136, 144
# As in ``driver.schedule``: whether wavefronts are not switched, and whether the last one that is ready runs first.
UNSWITCHED, BACKWARDS = 152, 160
# Rounds after which the caller has to act; if work-groups have not started, it has to after each one.
ROUNDS_LEFT = 168
STATE_BYTES = 176

# An entry of the table of ready wavefronts, which is in the order in which they are candidates: the turn of the
# wavefront, what orders those of the same turn, the wavefront.
(ENTRY_TURN, ENTRY_NUMBER, ENTRY_WAVE) = range(0, 24, 8)
ENTRY_BYTES = 24

# The code of a launch: its rows, its rank, the counters of its segments, work-groups that have started and not ended.
(ROWS, RANK, WAVES, LANES, GROUPS) = range(0, 40, 8)
# Of its work-groups: the control of ``native.execute``, the launch as in a record; how many have started, their number,
# as in ``schedule.Order`` the first and the step, and whether they start in the current round; addresses of the free
# slots, int64[slots], of which the last is used next, their number, and addresses of the structure of each slot.
(CONTROL, LAUNCH, STARTED, TOTAL, FIRST, STEP, IN_ROUND, FREE, FREE_COUNT, STRUCTURES) = range(40, 120, 8)
CODE_FIELDS = 15

# What native code returns to Python for. START: no work-group can start, as no slot is free or all have started.
# ROUND_ENDED: every ready wavefront has used a turn, maybe several times. STOPPED: the current wavefront needs Python
# for its next instruction. KERNEL_END: perform a kernel's release. LAUNCH_ENDED: the last work-group of a launch has
# ended, with wavefront ``PREVIOUS``. FAILED: a Python function has raised an exception. PAUSE: look at signals and
# limits.
FINISHED, START, ROUND_ENDED, STOPPED, KERNEL_END, LAUNCH_ENDED, FAILED, PAUSE = range(8)
_GO_ON, _NEXT = -1, -2

QUANTUM, SLACK = 16, 4
"""As in ``driver.schedule`` and ``driver.picking``."""
_RANK_SHIFT = 48


# -- the ready wavefronts ----------------------------------------------------------------------------------------------


@helper
def _number(wave):
    """Return what orders wavefronts of the same turn."""
    return get64(get64(wave + record.CODE) + RANK) << _RANK_SHIFT | get64(wave + record.NUMBER)


@helper
def _place(s, turn, number):
    """Return how many ready wavefronts come before ``number`` in its turn."""
    ready, low, high = get64(s + READY), 0, get64(s + COUNT)
    while low < high:
        middle = (low + high) >> 1
        entry = ready + ENTRY_BYTES * middle
        its = get64(entry + ENTRY_TURN)
        if its < turn or (its == turn and get64(entry + ENTRY_NUMBER) < number):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _candidates(s, lowest):
    """Return how many ready wavefronts are at most ``SLACK`` turns ahead of the slowest, whose turn is ``lowest``."""
    count = get64(s + COUNT)
    if count == 0 or get64(get64(s + READY) + ENTRY_BYTES * (count - 1) + ENTRY_TURN) <= lowest + SLACK:
        return count
    return _place(s, lowest + SLACK + 1, np.int64(0))


@helper
def _enqueue(s, wave):
    turn, number, count = get64(wave + record.TURN), _number(wave), get64(s + COUNT)
    at = _place(s, turn, number)
    place = get64(s + READY) + ENTRY_BYTES * at
    move(place + ENTRY_BYTES, place, ENTRY_BYTES * (count - at))
    _put(place, turn, number, wave)
    put64(s + COUNT, count + 1)


@helper
def _put(place, turn, number, wave):
    put64(place + ENTRY_TURN, turn)
    put64(place + ENTRY_NUMBER, number)
    put64(place + ENTRY_WAVE, wave)


@helper
def _take(s, index):
    place, count = get64(s + READY) + ENTRY_BYTES * index, get64(s + COUNT) - 1
    wave = get64(place + ENTRY_WAVE)
    move(place, place + ENTRY_BYTES, ENTRY_BYTES * (count - index))
    put64(s + COUNT, count)
    return wave


@helper
def _exchange(s, index, wave):
    """Take a ready wavefront, and enqueue another one."""
    ready, turn, number = get64(s + READY), get64(wave + record.TURN), _number(wave)
    at, from_ = _place(s, turn, number), ready + ENTRY_BYTES * index
    taken = get64(from_ + ENTRY_WAVE)
    if at <= index:
        to = ready + ENTRY_BYTES * at
        move(to + ENTRY_BYTES, to, ENTRY_BYTES * (index - at))
    else:
        at -= 1
        to = ready + ENTRY_BYTES * at
        move(from_, from_ + ENTRY_BYTES, ENTRY_BYTES * (at - index))
    _put(to, turn, number, wave)
    return taken


@helper
def _period(s):
    if get64(s + PERIOD) == 0:
        chosen = pick(get64(s + MODEL), 3, ws.HOW_OFTEN)
        put64(s + PERIOD, 1 if chosen == 0 else 4 if chosen == 1 else 16)
    return get64(s + PERIOD)


@helper
def _may_start(s):
    return get64(s + PENDING) and get64(s + RESIDENT) < get64(s + MOST_RESIDENT)


@helper
def _start(s, code):
    """Make the wavefronts of a launch's next work-group ready; return False if the caller has to act first."""
    free = get64(code + FREE_COUNT) - 1
    if free < 0 or get64(code + STARTED) == get64(code + TOTAL):
        return False
    place, groups, control = get64(code + STARTED), get64(code + TOTAL), get64(code + CONTROL)
    number, slot = (get64(code + FIRST) + place * get64(code + STEP)) % groups, get64(get64(code + FREE) + 8 * free)
    put64(code + FREE_COUNT, free)
    put64(code + STARTED, place + 1)
    if place + 1 == groups and not get64(s + LATER):
        put64(s + PENDING, 0)
    stride, count = get64(control + 8 * execute.STRIDE), get64(control + 8 * execute.WAVES_PER_GROUP)
    first = get64(get64(control + 8 * execute.RECORDS) + 8 * slot)
    share = get64(get64(control + 8 * execute.DATA_SHARES) + 8 * slot)
    put64(get64(control + 8 * execute.GROUPS) + 8 * slot, number)
    setup = execute._array(control, execute.SETUP, execute.SETUP_FIELDS)
    execute._start(first, count, number, control, setup, share)
    group = get64(get64(code + STRUCTURES) + 8 * slot)
    put64(group + LIVE, count)
    put64(group + ARRIVED, 0)
    put64(group + UNIT, 0)
    put64(group + SLOT, slot)
    if get64(s + EVENTS):
        launch = get64(code + LAUNCH)
        race_state.log(get64(launch + race_state.RS), race_state.CREATE, launch, number * count, number * count + count)
    for k in range(count):
        wave = first + k * stride
        put64(wave + record.MODEL, get64(s + MODEL))
        put64(wave + record.LAUNCH, get64(code + LAUNCH))
        put64(wave + record.CODE, code)
        put64(wave + record.GROUP, group)
        if get64(code + IN_ROUND):
            put64(wave + record.TURN, get64(s + ROUND))
        _enqueue(s, wave)
    add(s + RESIDENT, count)
    add(code + GROUPS, 1)
    return True


@helper
def _next(s):
    """Choose the wavefront that runs next, like ``Scheduler._next``."""
    wave = get64(s + CHOSEN)
    if wave == 0:
        while _may_start(s):
            if not _start(s, get64(s + PENDING)):
                return START
        if get64(s + COUNT) == 0:
            return FINISHED
        lowest = get64(get64(s + READY) + ENTRY_TURN)
        if lowest > get64(s + ROUND):
            put64(s + ROUND, lowest)
            add(s + ROUNDS_LEFT, -1)
            if get64(s + ROUNDS_LEFT) <= 0 or get64(s + PENDING):
                return ROUND_ENDED
        wave = _pick(s, lowest)
    put64(s + CHOSEN, 0)
    put64(s + CURRENT, wave)
    put64(s + PREVIOUS, wave)
    return _GO_ON


@helper
def _pick(s, lowest):
    model, ready = get64(s + MODEL), get64(s + READY)
    if get64(s + UNSWITCHED):
        return _take(s, _place(s, lowest + 1, np.int64(0)) - 1 if get64(s + BACKWARDS) else 0)
    count = _candidates(s, lowest)
    if count == 1:
        return _take(s, 0)
    period, last = _period(s), get64(s + PREVIOUS)
    at = count
    if last and get64(last + record.TURN) <= lowest + SLACK:
        at = _place(s, get64(last + record.TURN), _number(last))
        if at >= count or get64(ready + ENTRY_BYTES * at + ENTRY_WAVE) != last:
            at = count
    if at < count and period > 1 and pick(model, period, ws.SWITCHES) != 1:
        return _take(s, at)
    chosen = pick(model, count, ws.WHICH_WAVEFRONT)
    if at < count:  # the last one is the first candidate
        chosen = at if chosen == 0 else chosen - 1 if chosen <= at else chosen
    return _take(s, chosen)


@helper
def _goes_on(s, wave):
    """Return whether the wavefront that runs continues; otherwise it is ready. Like ``Scheduler._goes_on``."""
    if get64(s + UNSWITCHED):
        return True
    model, turn, lowest = get64(s + MODEL), get64(wave + record.TURN), get64(wave + record.TURN)
    if get64(s + COUNT):
        lowest = min(lowest, get64(get64(s + READY) + ENTRY_TURN))
    if _may_start(s) or lowest > get64(s + ROUND) or turn > lowest + SLACK:
        _enqueue(s, wave)
        return False
    others = _candidates(s, lowest)
    if others == 0:
        return True
    period = _period(s)
    if period > 1 and pick(model, period, ws.SWITCHES) != 1:
        return True
    chosen = pick(model, others + 1, ws.WHICH_WAVEFRONT)
    if chosen == 0:
        return True
    put64(s + CHOSEN, _exchange(s, chosen - 1, wave))
    return False


# -- executing ---------------------------------------------------------------------------------------------------------


@helper
def _release(s, group):
    """Release the wavefronts at a barrier, if all that live have arrived."""
    arrived = get64(group + ARRIVED)
    if arrived == 0 or arrived < get64(group + LIVE):
        return
    turn = np.int64(0)
    for i in range(arrived):
        turn = max(turn, get64(get64(group + AT_BARRIER + 8 * i) + record.TURN))
    if get64(s + EVENTS):
        race_order.released(get64(group + AT_BARRIER), group + AT_BARRIER, arrived)
    put64(group + ARRIVED, 0)
    for i in range(arrived):
        wave = get64(group + AT_BARRIER + 8 * i)
        put64(wave + record.STATE, record.RUNNING)
        put64(wave + record.TURN, turn)
        _enqueue(s, wave)


@helper
def _end(s, wave):
    group = get64(wave + record.GROUP)
    put64(wave + record.STATE, record.ENDED)
    if get64(s + EVENTS):
        race_order.ended(wave)
    add(s + ENDED, 1)
    add(s + RESIDENT, -1)
    add(group + LIVE, -1)
    if get64(group + LIVE) == 0:
        code = get64(wave + record.CODE)
        add(code + GROUPS, -1)
        put64(get64(code + FREE) + 8 * get64(code + FREE_COUNT), get64(group + SLOT))
        add(code + FREE_COUNT, 1)
        if get64(code + GROUPS) == 0 and get64(code + STARTED) == get64(code + TOTAL):
            return LAUNCH_ENDED
    put64(s + PREVIOUS, 0)
    _release(s, group)
    return _NEXT


@helper
def _switch(s, wave):
    """Let memory move, and choose who runs next."""
    model = get64(s + MODEL)
    moves = get64(s + MOVED) == 0 and ws.moves_now(model)
    if moves and ask(model, issuing.MOVE_NOW, get64(s + ENDING), 0, 0, 0) < 0:
        put64(s + MOVED, 1)
        return KERNEL_END
    put64(s + MOVED, 0)
    return FAILED if get64(model + ws.FAILED) else _GO_ON


@helper
def _run_wavefront(s, wave):
    """Run the current wavefront until another one is to run, or the caller has to act."""
    code = get64(wave + record.CODE)
    rows, waves, lanes = get64(code + ROWS), get64(code + WAVES), get64(code + LANES)
    at = rows + 8 * execute.ROW * get64(wave + record.POSITION)
    why = np.int64(_NEXT)
    while True:
        add(s + BUDGET, -1)
        operation = get64(at)
        if operation == execute.CALL:
            if call(get64(at + 8), wave, at + 16) != 0:
                why = STOPPED
                break
            at += 8 * execute.ROW
        elif operation == execute.RUN:
            done = call(get64(at + 8 * execute.RUN_FUNCTION), wave, at)
            at += 8 * execute.ROW * done
            if done < get64(at - 8 * execute.ROW * done + 8 * execute.RUN_LENGTH):
                why = STOPPED
                break
        elif operation == execute.COUNT:
            segment = 8 * get64(at + 16)
            add(waves + segment, 1)
            add(lanes + segment, bit_count(get64(wave + record.EXEC_BYTES)))
            at += 8 * execute.ROW
        elif operation == execute.SWITCH:
            why = _switch(s, wave)
            if why >= 0:
                break
            at = rows + 8 * execute.ROW * get64(at + 16) if get64(wave + record.BLOCKED) else at + 8 * execute.ROW
            put64(wave + record.BLOCKED, 0)
            # ``_goes_on`` may leave it to others, which then see where it is.
            put64(wave + record.POSITION, (at - rows) // (8 * execute.ROW))
            if not _goes_on(s, wave):
                why = _NEXT
                break
            if get64(s + BUDGET) < 0:
                why = PAUSE
                break
        elif operation in (execute.BRANCH, execute.JUMP):
            if operation == execute.BRANCH and not execute.is_taken(wave, at):
                at += 8 * execute.ROW
                continue
            target, quantum = get64(at + 16), get64(at + 24)
            at = rows + 8 * execute.ROW * target
            if quantum == 0:
                continue
            add(wave + record.LOOPS, 1)
            if get64(wave + record.LOOPS) >= quantum:
                put64(wave + record.LOOPS, 0)
                waits = quantum < QUANTUM or get64(s + COUNT) or get64(s + PENDING) or get64(s + CLOSED)
                if waits or get64(s + IMPATIENT):
                    add(wave + record.TURN, 1)
                    put64(wave + record.POSITION, target)
                    _enqueue(s, wave)
                    break
            if get64(s + BUDGET) < 0:
                why = PAUSE
                break
        elif operation == execute.SLEEP:
            at += 8 * execute.ROW
        elif operation == execute.BARRIER:
            group = get64(wave + record.GROUP)
            put64(wave + record.STATE, record.WAITING)
            put64(wave + record.POSITION, (at - rows) // (8 * execute.ROW) + 1)
            put64(group + AT_BARRIER + 8 * get64(group + ARRIVED), wave)
            add(group + ARRIVED, 1)
            _release(s, group)
            break
        elif operation == execute.END:
            flight = get64(wave + record.FLIGHT)
            if get64(s + EVENTS) == 0 and get64(wave + record.QUEUE):
                ask(get64(s + MODEL), issuing.SETTLE, wave, 0, 0, 0)  # another wavefront gets the record
            lingers = flight != 0 and ask(get64(s + MODEL), issuing.LINGERS, flight, 0, 0, 0) > 0
            put64(wave + record.POSITION, (at - rows) // (8 * execute.ROW))
            if get64(get64(s + MODEL) + ws.FAILED):
                why = FAILED
            elif lingers:
                _enqueue(s, wave)
            else:
                why = _end(s, wave)
            break
        else:
            why = STOPPED
            break
    if why in (STOPPED, PAUSE, KERNEL_END, FAILED):
        put64(wave + record.POSITION, (at - rows) // (8 * execute.ROW))
    else:
        put64(s + CURRENT, 0)
    return why


def _run(s: int) -> int:
    """Run wavefronts; return why the caller has to act. ``s``: the address of ``STATE_BYTES``."""
    while True:
        why = _GO_ON if get64(s + CURRENT) else _next(s)
        if why >= 0:
            return why
        why = _run_wavefront(s, get64(s + CURRENT))
        if why >= 0:
            return why


@cache
def runner() -> Callable[[int], int]:
    """Return ``_run`` as ``compilation.entry`` does."""
    return compilation.entry(_run)
