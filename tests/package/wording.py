"""Word lint: finds the project's old dialect in what people read.

    python -m tests.package.wording [PATH ...]

checks comments, docstrings, string literals and names of Python files, the prose of Markdown files, comments and string
literals of C and C++ files, and the whole text of templates, lists and configuration files (``_READ``). With no PATH it
checks every file that git tracks. It prints one line for each hit and exits with status 1 if there is one.
``CONTRIBUTING.md`` has the rules in words; ``WORDS``, ``OPENINGS`` and ``NAMES`` below are what a program can check.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

#: A pattern, and what to write instead.
WORDS = {
    r"told|tells?|telling": "report, return, state, pass, or distinguish",
    r"ask|asks|asked|asking": "request, query, require, or call for",
    r"say|says|said|saying": "state, name, report, or show",
    r"met|meets?": "encounter, satisfy, or receive",
    r"nobody|somebody|everybody|whoever": "name the actor: the caller, the rank, the process",
    r"so many": "n calls, that many calls, or the count's name",
    r"the own": "its own",
    r"beside": "next to, or besides",
    r"lets? go": "release",
    r"(?:came|comes?|become) of": "result of",
    r"(?<!there )(?<!there')(?:is|are|was|were) no (?!(?:longer|other|different|more|\w+er)\b)": "is not a",
    r"(?:that|which) there (?:is|are)(?: not| no)?": "that exists, available, unknown",
    r"(?<=[.:;] )who(?:se)? (?!has to\b)": "name the actor: the caller, the rank, the process",
    r"the reference(?! (?:pages?|manual|documentation|section|of)\b)": "upstream Iris, torch.distributed, or its name",
    r"for (?:him|her)self": "by itself",
}  # fmt: skip

#: First words that no docstring has: it starts with an imperative or a noun phrase.
OPENINGS = ("What", "Who", "Whose", "Where", "Whether", "How", "Why", "That", "When", "If", "To")

#: Names that tell a reader nothing.
NAMES = {
    "told": "report, result", "asked": "request", "said": "message", "found": "a noun for what is in it",
    "what": "a noun", "most": "limit, maximum", "showing": "a noun", "keeping": "a noun", "together": "a noun",
    "shares": "parts, fractions",
}  # fmt: skip

_WORDS = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), advice) for pattern, advice in WORDS.items()]
#: A Python file without any of these need not be split into tokens, which takes long.
_ANY_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b|#+:?\s*who", re.IGNORECASE)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`]+`")
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
_C = (".c", ".h", ".cpp")
_TEXT = (".toml", ".txt", ".j2", ".yaml", ".yml", ".ini", ".cfg", "Makefile")
_READ = (".py", ".md", *_C, *_TEXT)
#: A comment or a string literal; of the alternatives, the one that starts first in the text is taken.
_C_PROSE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
#: The first word of a comment, which names the actor.
_COMMENT_START = re.compile(r"\A(?:#+:?|//+!?|/\*+!?)\s*(who(?:se)?)\b(?! has to\b)", re.IGNORECASE)
#: Quotes the words that it bans.
_OWN = {"tests/package/wording.py", "tests/package/test_wording.py"}
#: Fields and values of recorded cases, by file. A case's id is computed from them, so that they must stay.
_RECORDED = {
    "conformance/support/cases.py": "name what", "conformance/ordering/cases.py": "nobody",
    "harness/evidence/records.py": "name what", "conformance/ordering/strategies.py": "nobody",
    "conformance/host/test_errors.py": "nobody",
}  # fmt: skip


@dataclass(frozen=True)
class Hit:
    """A place to rewrite: ``text`` is what stands there, ``advice`` what to write instead."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


def hits_in(path: str, source: str) -> list[Hit]:
    """Return the hits of a file, by line."""
    if path.endswith(".py"):
        return sorted([*_in_python(path, source)], key=lambda hit: hit.line)
    if path.endswith(_C):
        return list(_in_c(path, source))
    if path.endswith(_TEXT):
        return list(_in_text(path, source))
    return list(_in_prose(path, 1, _FENCE.sub(_blank, source)))


def tracked(*paths: str) -> list[str]:
    """Return the files to check: those below ``paths`` that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    return [name for name in listed.stdout.split("\0") if name.endswith(_READ) and name not in _OWN]


def main(paths: list[str]) -> int:
    """Check ``paths``, print the hits and the count by advice."""
    hits: list[Hit] = []
    for name in tracked(*paths):
        file = REPOSITORY / name
        if file.is_file():
            hits += [hit for hit in hits_in(name, file.read_text("utf-8")) if hit.text != _RECORDED.get(name)]
    for hit in hits:
        print(hit)
    for text, count in Counter(hit.text.lower() for hit in hits).most_common(20):
        print(f"{count:6} {text}", file=sys.stderr)
    print(f"{len(hits)} hits", file=sys.stderr)
    return bool(hits)


def _in_python(path: str, source: str) -> Iterator[Hit]:
    if _ANY_WORD.search(source):
        yield from _in_tokens(path, source)
    yield from _in_tree(path, ast.parse(source))


def _in_tokens(path: str, source: str) -> Iterator[Hit]:
    ended = 0  # the line of the last comment that stands alone in its line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            if not (alone and ended == token.start[0] - 1):
                yield from _at_start(path, token.start[0], token.string)
            ended = token.start[0] if alone else 0
        if token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield from _in_prose(path, token.start[0], token.string)


def _in_tree(path: str, tree: ast.Module) -> Iterator[Hit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            first = text.split(maxsplit=1)[0].rstrip(",.") if text else ""
            if first in OPENINGS:
                line = node.body[0].lineno
                yield Hit(path, line, f"{first} ...", "start with an imperative or a noun phrase")
        for name, line in _bound(node):
            advice = NAMES.get(name.strip("_").lower())
            if advice:
                yield Hit(path, line, f"name {name}", advice)


def _bound(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that ``node`` defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield (node.id if isinstance(node, ast.Name) else node.attr), node.lineno


def _in_c(path: str, source: str) -> Iterator[Hit]:
    ended = 0  # the line of the last // comment that stands alone in its line
    for match in _C_PROSE.finditer(source):
        line = 1 + source.count("\n", 0, match.start())
        if match[0].startswith("//"):
            alone = not source[source.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            if not (alone and ended == line - 1):
                yield from _at_start(path, line, match[0])
            ended = line if alone else 0
        elif match[0].startswith("/*"):
            yield from _at_start(path, line, match[0])
        yield from _in_prose(path, line, match[0])


def _in_text(path: str, source: str) -> Iterator[Hit]:
    before = ""
    for line, text in enumerate(source.splitlines(), 1):
        if text.lstrip().startswith("#") and not before.lstrip().startswith("#"):
            yield from _at_start(path, line, text.strip())
        before = text
    yield from _in_prose(path, 1, _EXPRESSION.sub(_blank, source) if path.endswith(".j2") else source)


def _at_start(path: str, line: int, comment: str) -> Iterator[Hit]:
    """Yield a hit if the comment, which continues no other, starts with a bare "Who"."""
    match = _COMMENT_START.match(comment)
    if match:
        yield Hit(path, line, f"{match[1]} ...", "name the actor: the caller, the rank, the process")


def _in_prose(path: str, line: int, text: str) -> Iterator[Hit]:
    text = _LINK_TARGET.sub(_blank, _CODE.sub(_blank, text))
    for pattern, advice in _WORDS:
        for match in pattern.finditer(text):
            yield Hit(path, line + text.count("\n", 0, match.start()), " ".join(match[0].split()), advice)


def _blank(match: re.Match[str]) -> str:
    """Spaces in the place of the match, so that lines keep their numbers."""
    return re.sub(r"[^\n]", " ", match[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
