"""A separate controller for the tests of what a group leaves behind: ``python -m tests.ranks.controller MODE``.

Prints the run id and the pids of everything it started, then acts by MODE: ``wait`` in a call that hangs, or
``idle``.
"""

from __future__ import annotations

import signal
import sys
import time

from harness.ranks import RankGroup

TARGETS = "tests.ranks.targets"


def main() -> None:
    mode = sys.argv[1]
    with RankGroup(2, options={"compile_once": False}) as group:
        below = group.call(f"{TARGETS}:pids_below")
        run_id = group.call(f"{TARGETS}:touches_shared_memory")[0]
        print(run_id, *sorted({pid for pids in below for pid in pids}), flush=True)
        if mode == "idle":
            time.sleep(10_000)
        group.call(f"{TARGETS}:{mode}", deadline=10_000)


if __name__ == "__main__":
    # A process that a shell script starts in the background inherits that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
