"""The word lint finds what it names, and nothing is left of it in the repository."""

import pytest

from tests.package.wording import hits_in, tracked
from tests.package.wording import main as lint

PLANTED = '''"""What a caller is told."""


class Group:
    """Whether nobody is beside it."""

    def wait(self, what, timeout):
        """Wait for every rank.

        >>> asked = 1
        """
        # Who waits is met by the reference: there is no other, and it is no rank.
        found = f"{what!r} is no rank count"
        return found
'''


def test_hits_of_a_planted_file():
    hits = [(hit.line, hit.text) for hit in hits_in("planted.py", PLANTED)]
    assert {line for line, _ in hits} == {1, 5, 7, 10, 12, 13}
    assert {text for line, text in hits if line == 1} == {"told", "What ..."}
    assert {text for line, text in hits if line == 5} == {"nobody", "beside", "Whether ..."}
    assert {text.lower() for line, text in hits if line == 12} == {"who ...", "met", "the reference", "is no"}
    assert {text for line, text in hits if line == 13} == {"name found", "is no"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("list.txt", "# The pin says so.\nnumpy==1\n", [(1, "says")]),
        ("Makefile", "# Who calls this\n# said\nall:\n", [(1, "Who ..."), (2, "said")]),
        ("a.ini", "[a]\nkey = nobody\n", [(2, "nobody")]),
        ("a.cfg", "# asked\n", [(1, "asked")]),
        ("a.yaml", "a: 1  # tells\n", [(1, "tells")]),
        ("a.yml", "a: told\n", [(1, "told")]),
        ("page.html.j2", "<p>{{ asked }} is told</p>\n", [(1, "told")]),
        ("a.c", "int told; /* Who waits\n * is told */\n", [(1, "Who ..."), (2, "told")]),
        ("a.h", "// The caller\n// who asks\nint asked(void);\n", [(2, "asks")]),
        ("a.cpp", 'f("// told"); // Whose turn\n', [(1, "told"), (1, "Whose ...")]),
        ("a.py", "a = 1  # Who waits\n# the rank\n# who waits\n", [(1, "Who ...")]),
        ("b.py", "# Who has to wait is in the table.\na = 1  # a caller who waits\n", []),
    ],
)
def test_every_kind_of_file_is_read(name, text, expected):
    assert sorted((hit.line, hit.text) for hit in hits_in(name, text)) == sorted(expected)


def test_code_in_prose_is_passed_over():
    text = "Call `told` or ``asked``.\n\n```python\nfound = told\n```\n[page](docs/said.md)\nIt is told.\n"
    assert [(hit.line, hit.text) for hit in hits_in("page.md", text)] == [(7, "told")]
    assert hits_in("table.toml", 'statement = "no rank longer waits"\n') == []


def test_every_tracked_file_is_read():
    names = tracked()
    assert {"README.md", "conformance/requirements.toml", "harness/__init__.py"} <= set(names)
    assert {"constraints-ci.txt", "Makefile", "tests/iris/standin_hip.c"} <= set(names)
    assert "tests/package/wording.py" not in names


def test_no_hits_are_left(capsys):
    if lint([]):
        pytest.fail(capsys.readouterr().out)
