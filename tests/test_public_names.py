"""What `help(cer_gpu)` shows: every public name has a docstring with an example that runs."""

import doctest
import importlib.metadata
import inspect
import tomllib
from pathlib import Path

import pytest

import cer_gpu

ROOT = Path(__file__).parent.parent
every_name = pytest.mark.parametrize("name", cer_gpu.__all__)


def test_dir_lists_the_public_names_alone():
    assert dir(cer_gpu) == sorted([*cer_gpu.__all__, "__version__"])


def test_the_example_of_the_package_prints_what_it_says():
    assert doctest.testmod(cer_gpu).failed == 0


@every_name
def test_examples_of_public_names_print_what_they_say(name):
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    tests = [
        test
        for test in doctest.DocTestFinder().find(getattr(cer_gpu, name), name, globs={})
        if not test.name.rpartition(".")[2].startswith("_")
    ]
    assert any(test.examples for test in tests if test.name == name), f"{name} has no example"
    for test in tests:
        runner.run(test, out=report.append)
    assert not report, "".join(report)


@every_name
def test_public_members_have_docstrings(name):
    public = getattr(cer_gpu, name)
    if inspect.isclass(public) and public.__module__.startswith("cer_gpu"):
        fields = getattr(public, "__dataclass_fields__", ())  # described in the docstring of the class
        members = [each for each in vars(public) if not each.startswith("_") and each not in fields]
        assert [each for each in members if not inspect.getdoc(getattr(public, each))] == []


INTERNAL = {
    "Query": "matches source needed_types without_choice window_units",
    "QuerySet": "matches named source",
    "Evaluator": "bind end_batch may_be_cut of_keys over part read restart restore",
}


@pytest.mark.parametrize("name", INTERNAL)
def test_methods_that_only_the_package_calls_are_underscored(name):
    public = getattr(cer_gpu, name)
    assert [each for each in INTERNAL[name].split() if hasattr(public, each)] == []


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cer_gpu.__version__"}
    try:
        installed = importlib.metadata.version("cer-gpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("runs from a checkout, without an installation")
    assert installed == cer_gpu.__version__
