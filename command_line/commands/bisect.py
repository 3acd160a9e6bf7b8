"""``iris-harness bisect``: the first commit of the library with which a case fails."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from command_line.bisect.revisions import BAD, GOOD, Answer, Commit, Worktree, repository_of, worktree
from command_line.bisect.trial import Library, Tried, attempt, library_of
from command_line.commands.replay import Replay, find_case
from command_line.nightly.leg import Stopped
from command_line.options import PATH
from command_line.output import console, printable, say
from command_line.preflight import check_software
from fixtures.adapters import package_of
from fixtures.repeat import folder_of
from harness.errors import UsageError

RANGE = 3
"""Exit status if commits that cannot be tried leave several candidates."""


@click.command("bisect", short_help="The first commit with which a case fails.")
@click.argument("case")
@click.option("--good", required=True, metavar="REV", help="A revision with which the case passes.")
@click.option("--bad", required=True, metavar="REV", help="A later revision with which it fails.")
@click.option("--repository", type=PATH, help="The library's repository.  [default: the one it is imported from]")
@click.option("--path", "place", type=PATH, help="The package's folder in the repository.  [default: as it is now]")
@click.option("--build", metavar="COMMAND", help="Command that builds a revision, run in its root, without a shell.")
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="Runs with each revision, for a flaky case: it is bad if one fails.",
)  # fmt: skip
@click.option("--evidence", type=PATH, help="Evidence with the case, if CASE is an id.")
@click.option("--implementation", help="The package under test that a case file names; confirms its use.")
def command(
    case: str,
    good: str,
    bad: str,
    repository: Path | None,
    place: Path | None,
    build: str | None,
    repeat: int,
    evidence: Path | None,
    implementation: str | None,
) -> int:
    """Run CASE, a case file or an id, with revisions of the library between --good and --bad, and name the first bad
    one. The suite is this installation's for all of them; your checkout is not touched.

    A revision that cannot be built, imported or judged is skipped, so the answer may be a range.

    \b
    Exit status: 0  the first bad commit is known
                 1  the case fails with --good, or passes with --bad
                 2  the request was wrong
                 3  several commits are left, since those between them cannot be tried
                 130, 143  stopped
    """
    replay = find_case(case, evidence, implementation)
    request = replay.request
    check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    root, package = _places(request.implementation, repository, place)
    library = library_of(request.implementation, package, build)
    screen = console()
    folder = Path(tempfile.mkdtemp(prefix="iris-bisect-"))
    try:
        with _terminable(), worktree(root, folder / "tree") as tree:
            first, last = tree.commit(good), tree.commit(bad)
            tree.check_order(first, last)
            search = _Search(replay, library, tree, folder, repeat, screen)
            if not search.ends(first, last):
                return 1
            answer = search.run(first, last)
    except Stopped as stop:
        return 128 + stop.number
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    words = ["iris-harness", "bisect", case, "--repository", str(root), "--path", str(package)]
    words += ["--build", build] if build else []
    words += ["--repeat", str(repeat)] if repeat > 1 else []
    words += ["--implementation", implementation] if implementation else []
    words += ["--evidence", str(evidence)] if evidence is not None else []
    return _report(answer, words, screen)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into ``Stopped`` in the body, so that the worktree is removed. The trials have their own handler."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


class _Search:
    """The revisions that were tried, each in its own folder."""

    def __init__(
        self, replay: Replay, library: Library, tree: Worktree, folder: Path, repeat: int, screen: Console
    ) -> None:
        self._replay = replay
        self._library = library
        self._tree = tree
        self._folder = folder
        self._repeat = repeat
        self._screen = screen
        self._count = 0

    def ends(self, good: Commit, bad: Commit) -> bool:
        """Try both ends first; return whether they are as they were named."""
        for commit, expected in ((bad, BAD), (good, GOOD)):
            self._tree.checkout(commit)
            tried = self._try(commit)
            if tried.word != expected:
                say(f"{commit.sha[:12]} was named --{expected}, and it is not: {tried.reason}")
                return False
        return True

    def run(self, good: Commit, bad: Commit) -> Answer:
        """Return the first bad commit, or the candidates."""
        answer = self._tree.begin(good, bad)
        while answer is None:
            answer = self._tree.mark(self._try(self._tree.current()).word)
        return answer

    def _try(self, commit: Commit) -> Tried:
        self._count += 1
        tried = attempt(self._replay, self._library, self._tree.folder, self._folder / str(self._count), self._repeat)
        self._screen.print(printable(f"{tried.word:<5} {commit.words}: {tried.reason}"), markup=False, soft_wrap=True)
        return tried


def _report(answer: Answer, words: list[str], screen: Console) -> int:
    if answer.exact:
        [commit] = answer.commits
        screen.print(
            printable(f"\nFirst bad commit: {commit.words}").replace("\\n", "\n"), markup=False, soft_wrap=True
        )
        command = shlex.join([*words, "--good", f"{commit.sha[:12]}^", "--bad", commit.sha[:12]])
        screen.print(f"repeat  {printable(command)}", markup=False, soft_wrap=True)
        return 0
    screen.print(f"\nThe first bad commit is one of {len(answer.commits)}; the others cannot be tried:", markup=False)
    for commit in answer.commits:
        screen.print(f"  {printable(commit.words)}", markup=False, soft_wrap=True)
    return RANGE


def _places(implementation: str, repository: Path | None, place: Path | None) -> tuple[Path, Path]:
    """Return the root of the library's repository, and the folder of its package in it."""
    package = package_of(implementation)
    if place is not None and (place.is_absolute() or ".." in place.parts):
        raise UsageError(f"--path: expected a folder within the repository, got {str(place)!r:.100}")
    if repository is not None:
        root = repository_of(repository)
        if place is not None:
            return root, place
        for candidate in (Path(package), Path("src", package), Path("python", package)):
            if (root / candidate).is_dir():
                return root, candidate
        raise UsageError(f"{root} has no folder {package}: name the package's folder in it with --path")
    parent = folder_of(implementation)
    if parent is None:
        raise UsageError(f"{package} cannot be imported: name its repository with --repository")
    root = repository_of(Path(parent))
    return root, place or Path(parent, package).resolve().relative_to(root.resolve())
