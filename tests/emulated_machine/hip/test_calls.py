"""The table of HIP's calls is complete, and its page is the table's."""

import re
from pathlib import Path

from harness.emulated_machine.hip import build, calls


def test_every_function_of_the_headers_is_in_the_table():
    header = (build._headers() / "hip" / "hip_runtime_api.h").read_text()
    names = set(re.findall(r"^(?:hipError_t|const char\s*\*)\s*(hip\w+)\s*\(", header, re.MULTILINE))
    assert len(names) > 300 and names - set(calls.CALLS) == set()


def test_every_matrix_product_function_is_in_its_table():
    source = (Path(build.__file__).parent / "native" / "hipblaslt.c").read_text()
    implemented = set(re.findall(r"^EXPORT int (hipblasLt\w+)\(", source, re.MULTILINE))
    refused = set(calls.refused(calls.MATRIX_PRODUCTS))
    assert len(implemented) > 10 and implemented | refused == set(calls.MATRIX_PRODUCTS)
    assert not implemented & refused
    assert "`hipblasLtMatmul`" in calls.page() and "`hipblasLtMatrixTransform`" in calls.page()


def test_the_page_is_the_tables():
    assert (Path(__file__).parents[3] / calls.PAGE).read_text() == calls.page()
