"""The names and module paths that users import."""

import importlib

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase


def run(env, case):
    found, name = Findings(env.rank), env.under_test.name
    package = env.under_test.module
    for attribute in (
        "iris",
        "Iris",
        "logger",
        "set_logger_level",
        "DEBUG",
        "INFO",
        "WARNING",
        "ERROR",
        "tensor_creation",
        "experimental",
    ):
        found.true(f"{name}.{attribute}", hasattr(package, attribute))
    for module, attributes in {
        "gluon": ("IrisDeviceCtx",),
        "ccl": ("Config", "ReduceOp"),
        "ccl.all_gather": ("all_gather",),
        "ccl.utils": ("extract_group_info",),
        "experimental.iris_gluon": ("iris", "IrisDeviceCtx"),
    }.items():
        try:
            loaded = importlib.import_module(f"{name}.{module}")
        except ImportError as error:
            found.note(f"import {name}.{module}", str(error), "a module")
            continue
        for attribute in attributes:
            found.true(f"{name}.{module}.{attribute}", hasattr(loaded, attribute))
    found.true(
        "one IrisDeviceCtx under all names",
        importlib.import_module(f"{name}.experimental.iris_gluon").IrisDeviceCtx is env.device_context,
    )
    for method in (
        "load",
        "store",
        "get",
        "put",
        "copy",
        *(f"atomic_{op}" for op in ("add", "sub", "cas", "xchg", "xor", "and", "or", "min", "max")),
    ):
        found.true(f"IrisDeviceCtx.{method}", hasattr(env.device_context, method))
    found.true("ccl.all_gather on the instance", callable(env.iris.ccl.all_gather))
    return found.first


@requirement("HOST-NAMES-001", cases=lambda ranks: [HostCase("names")])
def test_names(check, case):
    check(run, case)
