"""What `make test` may take: no file without a mark takes long, and each mark has its reason."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from durations import COMPILING, CPU, FAILING_SECONDS, FILE_SECONDS, Durations

TESTS = Path(__file__).parent


def finished(durations, *, cpu, compiling=0.0, file="tests/test_a.py"):
    """Report one test of a file, and return the exit status of the run."""
    for when, properties in (("call", []), ("teardown", [(CPU, cpu), (COMPILING, compiling)])):
        report = SimpleNamespace(when=when, nodeid=f"{file}::test", duration=cpu, user_properties=properties)
        durations.pytest_runtest_logreport(report)
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    durations.pytest_sessionfinish(session)
    return session.exitstatus


def test_a_file_that_takes_long_fails_the_run():
    durations = Durations(only_short=True)
    assert finished(durations, cpu=FILE_SECONDS - 1) == pytest.ExitCode.OK
    assert not durations.too_long()
    assert finished(durations, cpu=2) == pytest.ExitCode.OK
    assert list(durations.too_long()) == ["tests/test_a.py"]
    assert finished(durations, cpu=FAILING_SECONDS) == pytest.ExitCode.TESTS_FAILED


def test_what_is_compiled_counts_for_no_file():
    assert finished(Durations(only_short=True), cpu=FAILING_SECONDS + 9, compiling=10) == pytest.ExitCode.OK


def test_a_run_with_tests_marked_long_may_take_long():
    assert finished(Durations(only_short=False), cpu=10 * FAILING_SECONDS) == pytest.ExitCode.OK


def test_marks_of_long_tests_have_a_reason():
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))
    trees = [ast.parse(text) for text in texts if "mark.long" in text]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    marks = [n for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n) == "pytest.mark.long"]
    reasons = [n for n in nodes if isinstance(n, ast.Call) and n.func in marks and n.args]
    assert len(marks) == len(reasons) > 40
