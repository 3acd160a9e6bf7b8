"""Benchmarks."""

from __future__ import annotations

from mutants.planting import Defect


def benchmark_defects() -> list[Defect]:
    """Return the defects."""
    return [
        Defect(
            "unseen: ops: results in the order of world sizes",
            "bench/command.py",
            "return [results[task.name] for task in tasks]",
            "return list(results.values())",
            "def _run(",
            "test_main",
        ),
        Defect(
            "unseen: bench: the time limit counts for all configurations together, since the watchdog is armed once",
            "bench/worker.py",
            "        for task in tasks:\n"
            "            faulthandler.dump_traceback_later(options.time_limit, exit=True)\n",
            "        for task in tasks:\n",
            "def run_rank",
            "test_main and whole",
        ),
        Defect(
            "unseen: bench: main returns normally where ranks crashed and configurations were not run",
            "bench/command.py",
            "    if any(result.status not in {OK, SKIPPED} for result in results):\n",
            '    if any(result.status == "failed" for result in results):\n',
            "def main",
            "test_main and whole",
        ),
        Defect(
            "unseen: bench: a text axis whose values look like numbers gets numbers from the command line",
            "bench/axes.py",
            "    if all(isinstance(value, str) for value in like):\n"
            "        return text\n"
            "    for kind in (int, float):\n"
            "        try:\n"
            "            return kind(text)\n"
            "        except ValueError:\n"
            "            continue\n",
            "    for kind in (int, float):\n"
            "        try:\n"
            "            return kind(text)\n"
            "        except ValueError:\n"
            "            continue\n"
            "    if all(isinstance(value, str) for value in like):\n"
            "        return text\n",
            "def _value",
            "test_main and whole",
        ),
        Defect(
            "unseen: bench: --skip_num_ranks=8 does not skip a benchmark without the axis num_ranks",
            "bench/command.py",
            "        elsewhere = DEFAULT_RANKS not in wanted(RANKS_AXIS, [DEFAULT_RANKS], replaced, unwanted)\n",
            "        elsewhere = DEFAULT_RANKS not in wanted(RANKS_AXIS, [DEFAULT_RANKS], replaced, {})\n",
            "def main",
            "test_main and whole",
        ),
        Defect(
            "unseen: bench: check_fn runs before the other ranks have ended their last call",
            "bench/worker.py",
            "    ctx.barrier()\n    if state.check_fn is not None",
            "    if state.check_fn is not None",
            "def _time",
            "test_main and whole",
        ),
        Defect(
            "unseen: bench: counters that the first result lacks are left out of the table",
            "bench/results.py",
            "    counters = list(dict.fromkeys(name for result in results for name in result.counters))\n",
            "    counters = list(results[0].counters)  # the same for all configurations\n",
            "def _table",
            "test_main and whole",
        ),
    ]
