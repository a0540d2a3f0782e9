"""What `make test` may take: no file without a mark takes long, and each mark has its reason."""

import ast
from pathlib import Path
from types import SimpleNamespace

from durations import COMPILING, CPU, FILE_SECONDS, Durations

TESTS = Path(__file__).parent


def finish(durations, *, cpu, compiling=0.0, file="tests/test_a.py"):
    """Report one test of a file."""
    for when, properties in (("call", []), ("teardown", [(CPU, cpu), (COMPILING, compiling)])):
        report = SimpleNamespace(when=when, nodeid=f"{file}::test", duration=cpu, user_properties=properties)
        durations.pytest_runtest_logreport(report)


def test_a_file_that_takes_long_is_named():
    durations = Durations(only_short=True)
    finish(durations, cpu=FILE_SECONDS - 1)
    assert not durations.too_long()
    finish(durations, cpu=2)
    assert durations.too_long() == {"tests/test_a.py": FILE_SECONDS + 1}


def test_what_is_compiled_counts_for_no_file():
    durations = Durations(only_short=True)
    finish(durations, cpu=FILE_SECONDS + 9, compiling=10)
    assert not durations.too_long()


def test_marks_of_long_tests_have_a_reason():
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))
    trees = [ast.parse(text) for text in texts if "mark.long" in text]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    marks = [n for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n) == "pytest.mark.long"]
    reasons = [n for n in nodes if isinstance(n, ast.Call) and n.func in marks and n.args]
    assert len(marks) == len(reasons) > 40
