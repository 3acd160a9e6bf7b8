"""The table of HIP's calls is complete, and its page is the table's."""

import re
from pathlib import Path

from harness.emulated_machine.hip import build, calls


def test_every_function_of_the_headers_is_in_the_table():
    header = (build._headers() / "hip" / "hip_runtime_api.h").read_text()
    names = set(re.findall(r"^(?:hipError_t|const char\s*\*)\s*(hip\w+)\s*\(", header, re.MULTILINE))
    assert len(names) > 300 and names - set(calls.CALLS) == set()


def test_the_page_is_the_tables():
    assert (Path(__file__).parents[3] / calls.PAGE).read_text() == calls.page()
