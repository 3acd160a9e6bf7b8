"""``ctx.ccl``, ``ctx.ops`` and the tensor factories of ``Iris``: methods that do what their functions do."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace

import pytest

from iris_under_test import ccl, ops
from iris_under_test.ccl import instance as ccl_instance
from iris_under_test.ccl.instance import InstanceCollectives
from iris_under_test.host import tensor_creation, tensor_methods
from iris_under_test.host.tensor_methods import TensorMethods
from iris_under_test.ops import instance as ops_instance
from iris_under_test.ops.instance import InstanceOps

BIAS_LAST = ("matmul_all_reduce", "matmul_reduce_scatter")
"""Functions whose last parameter is ``bias``; in their methods it follows the matrices, as in every op's."""


def functions_of(module):
    """The public functions that take an instance, by name."""
    public = {name: getattr(module, name) for name in module.__all__}
    return {
        name: function
        for name, function in public.items()
        if inspect.isfunction(function) and "ctx" in inspect.signature(function).parameters
    }


def factories():
    return {name: getattr(tensor_creation, name) for name in tensor_creation.__all__ if name != "is_valid_device"}


def as_method(function):
    """The parameters and the result that a function promises, as its method should."""
    signature = inspect.signature(function)
    shown = [parameter for name, parameter in signature.parameters.items() if name != "ctx"]
    if function.__name__ in BIAS_LAST:
        shown.insert(3, shown.pop())
    if function.__module__ == tensor_creation.__name__:  # heap and device are the instance's
        shown = [p.replace(name="device") if p.name == "requested_device" else p for p in shown[2:]]
    return shown, signature.return_annotation


def differences(functions, methods):
    """Return how the class ``methods`` differs from its functions, one sentence each."""
    sentences = []
    for name, function in functions.items():
        method = getattr(methods, name, None)
        if method is None:
            sentences.append(f"{methods.__name__} has no {name}")
            continue
        signature = inspect.signature(method)
        wanted, got = as_method(function), ([*signature.parameters.values()][1:], signature.return_annotation)
        if wanted != got:
            sentences.append(f"{name}: the function has {wanted}, the method {got}")
        if not inspect.getdoc(method):
            sentences.append(f"{name} has no docstring")
    extra = {name for name in vars(methods) if not name.startswith("_")} - set(functions)
    return sentences + [f"{name} is not a function" for name in sorted(extra)]


SUBJECTS = {
    "ccl": (functions_of(ccl), InstanceCollectives, ccl_instance),
    "ops": (functions_of(ops), InstanceOps, ops_instance),
    "tensors": (factories(), TensorMethods, tensor_methods.tensor_creation),
}
METHODS = [(subject, name) for subject, (functions, _, _) in SUBJECTS.items() for name in functions]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_methods_have_the_signatures_of_their_functions(subject):
    functions, methods, _ = SUBJECTS[subject]
    assert len(functions) >= 8
    assert differences(functions, methods) == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_static_tools_see_the_methods(subject):
    """Each is a ``def`` in the class body, so that an editor shows its parameters and its docstring."""
    functions, methods, _ = SUBJECTS[subject]
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(methods))).body
    written = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(functions) <= set(written)
    for name in functions:
        assert ast.get_docstring(written[name]), name
        # A bare **options would hide what the method takes.
        assert written[name].args.kwarg is None, name


@pytest.mark.parametrize(("subject", "name"), METHODS, ids=lambda value: value)
def test_a_method_passes_each_argument_to_the_parameter_of_its_name(subject, name, monkeypatch):
    functions, methods, called_in = SUBJECTS[subject]
    signature = inspect.signature(functions[name])
    calls = []

    def record(*arguments, **options):
        calls.append(signature.bind(*arguments, **options).arguments)
        return "returned"

    monkeypatch.setattr(called_in, name, record)
    instance = SimpleNamespace(heap="heap", _device="device of the instance")
    own = instance if subject == "tensors" else methods(instance)
    arguments, options = [], {}
    for parameter in list(inspect.signature(getattr(methods, name)).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments += [f"{parameter.name} 0", f"{parameter.name} 1"]
        else:
            options[parameter.name] = f"{parameter.name} of the call"
    returned = getattr(methods, name)(own, *arguments, **options)
    wanted = {parameter: options.get(parameter) for parameter in signature.parameters}
    if subject == "tensors":
        wanted |= {"heap": "heap", "device": "device of the instance"}
        if "requested_device" in wanted:
            wanted["requested_device"] = "device of the call"
        wanted |= {
            p.name: tuple(arguments)
            for p in signature.parameters.values()
            if p.kind is inspect.Parameter.VAR_POSITIONAL
        }
    else:
        wanted["ctx"] = instance
    assert calls == [wanted]
    assert returned == ("returned" if signature.return_annotation != "None" else None)


class Planted:
    """The methods of ``scale``, each wrong in another way."""

    class Renamed:
        def scale(self, vector: list[int], by: int = 1) -> list[int]:
            """Doc."""

    class Default:
        def scale(self, tensor: list[int], by: int = 2) -> list[int]:
            """Doc."""

    class Swapped:
        def scale(self, by: int, tensor: list[int]) -> list[int]:
            """Doc."""

    class Result:
        def scale(self, tensor: list[int], by: int = 1) -> int:
            """Doc."""

    class Bare:
        def scale(self, tensor: list[int], by: int = 1) -> list[int]:
            pass

    class More:
        def scale(self, tensor: list[int], by: int = 1) -> list[int]:
            """Doc."""

        def shrink(self): ...

    class Missing:
        pass

    class Right:
        def scale(self, tensor: list[int], by: int = 1) -> list[int]:
            """Doc."""


@pytest.mark.parametrize("planted", [name for name in vars(Planted) if not name.startswith("_")])
def test_a_planted_difference_is_found(planted):
    def scale(tensor: list[int], ctx: object, by: int = 1) -> list[int]:
        raise AssertionError("never called")

    sentences_of_planted = differences({"scale": scale}, getattr(Planted, planted))
    assert len(sentences_of_planted) == (planted != "Right"), sentences_of_planted
