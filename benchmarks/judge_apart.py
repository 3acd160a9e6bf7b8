"""Seconds of a case that is judged apart from the library, as a ratio to the same case judged in the library's process.

    python -m benchmarks.judge_apart [--ranks 4] [--rounds 3] [--device emulated] [NAME ...]

NAME is what ``iris-harness check`` accepts. Each round runs the same cases both ways, one after the other, with a
compiled cache; cases are matched by id, and those that are judged together either way are left out. Prints a line of
JSON for each NAME, and for its cases under the race detector: the number of cases, the medians, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import adversary, evidence

NAMES = ("RMA-PUT-001", "ATOMIC-ADD-001", "CCL-ALLGATHER-001", "FUSED-ALLGATHER-001")


def seconds_of(name: str, ranks: int, judge: str, device: str, folder: Path) -> dict[tuple[bool, str], float]:
    """Return the seconds of each case that ran without compilation, by whether it ran under the race detector, and its
    id."""
    command = [sys.executable, "-m", "command_line", "check", name, "--ranks", str(ranks), "--judge", judge]
    command += ["--device", device]
    done = subprocess.run([*command, "--output", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {
        (adversary.detects_races(case.case.get(adversary.KEY, "")), case.id): case.timing["seconds"]
        for case in evidence.read(folder / "evidence.jsonl").cases
        if case.judge == judge and not case.timing["compile_seconds"]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="emulated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names:
            seconds: dict[str, dict[tuple[bool, str], list[float]]] = {judge: {} for judge in evidence.JUDGES}
            for number in range(arguments.rounds + 1):  # the first round fills the cache
                for judge in evidence.JUDGES:
                    for identity, each in seconds_of(
                        name, arguments.ranks, judge, arguments.device, Path(folder)
                    ).items():
                        if number:
                            seconds[judge].setdefault(identity, []).append(each)
            common = set.intersection(*(set(each) for each in seconds.values()))
            for races in sorted({races for races, _ in common}):
                some = [identity for identity in common if identity[0] == races]
                medians = {
                    judge: statistics.median(statistics.median(each[identity]) for identity in some)
                    for judge, each in seconds.items()
                }
                one_process, apart = medians[evidence.ONE_PROCESS], medians[evidence.APART]
                line = {"name": name, "ranks": arguments.ranks, "races": races, "cases": len(some)}
                milliseconds = {f"{judge}_ms": round(1e3 * each, 2) for judge, each in medians.items()}
                print(json.dumps({**line, **milliseconds, "ratio": round(apart / one_process, 2)}), flush=True)


if __name__ == "__main__":
    main()
