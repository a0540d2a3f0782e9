"""Public functions whose options go by name say so, in one line, where one is given by position."""

import importlib
import inspect

import pytest

import cer_gpu
from cer_gpu.errors import OptionError

MODULES = ("cer_gpu", "cer_gpu.rules", "cer_gpu.frames", "cer_gpu.plot", "cer_gpu.report", "spark_glue")


def takes_options(function):
    kinds = {each.kind for each in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL not in kinds and bool(
        kinds & {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    )


def public_functions():
    """Functions, and methods of classes, that the packages export."""
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # an extra that is not there
            continue
        for public in getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]):
            value = getattr(module, public)
            if not str(getattr(value, "__module__", "")).startswith(("cer_gpu", "spark_glue")):
                continue  # it is another package's
            if inspect.isclass(value) and not issubclass(value, BaseException):
                own = {n: each for n, each in inspect.getmembers(value, inspect.isfunction) if not n.startswith("_")}
                found = {f"{name}.{public}.{n}": each for n, each in own.items()}
            else:
                found = {f"{name}.{public}": value} if inspect.isfunction(value) else {}
            yield from ((each, function) for each, function in found.items() if takes_options(function))


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_option_by_position_is_told_in_one_line(name):
    function = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters.values()
    n = sum(each.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters)
    with pytest.raises(OptionError, match="options go by name") as raised:
        function(*[None] * (n + 1))
    assert "\n" not in str(raised.value)


def test_the_functions_are_those_that_people_call():
    assert {"cer_gpu.compile", "cer_gpu.Query.evaluator", "cer_gpu.QuerySet.evaluate", "cer_gpu.rules.load"} <= set(
        FUNCTIONS
    )


def test_the_line_names_what_is_taken_and_some_options():
    query = cer_gpu.compile("SELECT * FROM S WHERE A")
    with pytest.raises(OptionError) as raised:
        query.evaluator("cpu")
    assert str(raised.value) == (
        "evaluator() takes nothing by position, got 1 argument: "
        "its options go by name (device=, output=, lateness=, ...)"
    )
