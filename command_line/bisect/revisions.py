"""A worktree of a repository in a temporary folder, in which git bisects. The user's own checkout is not touched."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError

GOOD, BAD, SKIP = "good", "bad", "skip"
_LIMIT = 600.0
_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.MULTILINE)
_SHA = re.compile(r"^[0-9a-f]{40,64}$", re.MULTILINE)


@dataclass(frozen=True)
class Commit:
    """A commit: its hash, the first line of its message, its author's date."""

    sha: str
    subject: str
    date: str

    @property
    def words(self) -> str:
        """The commit in one line."""
        return f"{self.sha[:12]} {self.date} {self.subject}"


@dataclass(frozen=True)
class Answer:
    """Commits of which one is the first bad one: a single one, unless commits next to it were skipped."""

    commits: tuple[Commit, ...]

    @property
    def exact(self) -> bool:
        """True if the commit is known."""
        return len(self.commits) == 1


class Worktree:
    """A worktree of ``repository`` whose files are those of one revision at a time."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder = folder
        self._repository = repository

    def commit(self, revision: str = "HEAD") -> Commit:
        """Return the commit that a revision names. Raises UsageError if there is none."""
        given = f"{revision}^{{commit}}"
        sha = self._git(self._repository, "rev-parse", "--verify", "--quiet", "--end-of-options", given, fails=True)
        if not sha:
            raise UsageError(f"{self._repository} has no commit {revision!r:.100}: name a commit, a tag or a branch")
        return self._described(sha.strip())

    def current(self) -> Commit:
        """Return the commit that is checked out."""
        return self._described(self._git(self.folder, "rev-parse", "HEAD").strip())

    def check_order(self, good: Commit, bad: Commit) -> None:
        """Raise UsageError unless ``good`` is an ancestor of ``bad``."""
        if good.sha == bad.sha:
            raise UsageError(f"--good and --bad are the same commit, {good.sha[:12]}")
        base = self._git(self._repository, "merge-base", good.sha, bad.sha, fails=True).strip()
        if base != good.sha:
            raise UsageError(f"--good {good.sha[:12]} is not an ancestor of --bad {bad.sha[:12]}: name one that is")

    def checkout(self, commit: Commit) -> None:
        """Make the files those of a commit."""
        self._git(self.folder, "checkout", "--quiet", "--force", "--detach", commit.sha)
        self._clean()

    def begin(self, good: Commit, bad: Commit) -> Answer | None:
        """Start to bisect: check out the first commit to try, or return the answer if there is none to try."""
        return self._answer(self._git(self.folder, "bisect", "start", bad.sha, good.sha))

    def mark(self, word: str) -> Answer | None:
        """State of the commit that is checked out that it is ``GOOD``, ``BAD``, or cannot be tried (``SKIP``). Check
        out the next one, or return the answer."""
        self._git(self.folder, "reset", "--quiet", "--hard")
        self._clean()
        before = self._git(self.folder, "rev-parse", "HEAD")
        answer = self._answer(self._git(self.folder, "bisect", word, fails=True))  # status 2 if all others were skipped
        if answer is None and self._git(self.folder, "rev-parse", "HEAD") == before:
            raise UsageError(f"git bisect {word} did not go on from {before.strip()[:12]}")
        return answer

    def _answer(self, text: str) -> Answer | None:
        if match := _FIRST.search(text):
            return Answer((self._described(match[1]),))
        if "only 'skip'ped commits left" in text:
            candidates = _SHA.findall(text.partition("could be any of")[2])
            return Answer(tuple(self._described(sha) for sha in candidates))
        return None

    def _clean(self) -> None:
        """Remove what a build or a run left: nothing of one revision is used with the next."""
        self._git(self.folder, "clean", "--quiet", "-d", "-x", "--force", "--force")

    def _described(self, sha: str) -> Commit:
        line = self._git(self._repository, "show", "--no-patch", "--format=%H%x00%as%x00%s", sha).strip()
        full, date, subject = line.split("\0", 2)
        return Commit(full, subject, date)

    @staticmethod
    def _git(folder: Path, *words: str, fails: bool = False) -> str:
        return git(folder, *words, fails=fails)


@contextmanager
def worktree(repository: Path, folder: Path) -> Iterator[Worktree]:
    """Yield a worktree in ``folder``, a new folder; it is removed in the end, also from the repository's list."""
    git(repository, "worktree", "add", "--quiet", "--detach", str(folder), "HEAD")
    try:
        yield Worktree(repository, folder)
    finally:
        git(repository, "worktree", "remove", "--force", str(folder), fails=True)
        git(repository, "worktree", "prune", fails=True)


def repository_of(folder: Path) -> Path:
    """Return the root of the repository with a folder. Raises UsageError if it is in none."""
    root = git(folder, "rev-parse", "--show-toplevel", fails=True).strip() if folder.is_dir() else ""
    if not root:
        raise UsageError(f"{folder} is not in a git repository: name the library's repository with --repository")
    return Path(root)


def git(folder: Path, *words: str, fails: bool = False) -> str:
    """Return what a git command prints. ``fails``: it may fail. No hook of the repository runs, and no variable of git
    redirects it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words]
    try:
        done = subprocess.run(
            command, env={**environment, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}, capture_output=True, text=True,
            errors="replace", timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("git is not installed, and bisect needs it: apt-get install git") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {words[0]} did not end within {_LIMIT:g} s in {folder}") from None
    if done.returncode and not fails:
        raise UsageError(f"git {' '.join(words[:2])} failed in {folder}: {' '.join(done.stderr.split()):.300}")
    return done.stdout
