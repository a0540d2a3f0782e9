"""``cer-gpu test``: run the test cases of rules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from cer_gpu.cli.command_line import say_notes, show_text
from cer_gpu.cli.query_arguments import first_of
from cer_gpu.cli.shared_options import QueryOptions, complete_files, query_options
from cer_gpu.engine.evaluation_options import OverridableDefault
from cer_gpu.errors import CerError, OptionError
from cer_gpu.printable import counted, printable
from cer_gpu.rule_tests import CaseOutcome, CaseRunner, read_cases, write_junit
from cer_gpu.rule_tests.case_runner import AS_EXPECTED, ERROR, FAILED, in_all
from cer_gpu.rule_tests.cases import case_files

_SHOWN = {
    AS_EXPECTED: click.style("ok    ", fg="green"),
    FAILED: click.style("FAILED", fg="red", bold=True),
    ERROR: click.style("ERROR ", fg="red", bold=True),
}


@click.command(
    "test",
    epilog="""\b
Examples:
  cer-gpu test rules
  cer-gpu test rules --junit outcomes.xml
  cer-gpu test rules/guessed_password.test.yml --time-column ts""",
)
@click.argument("folder", shell_complete=complete_files)
@click.option("--junit", metavar="FILE", shell_complete=complete_files, help="Also write the outcomes as JUnit XML.")
@query_options
def test_command(folder: str, junit: str | None, compiling: QueryOptions) -> int:
    """Run the test cases of the rules in FOLDER: *.test.yml.

    A case has events and the matches that a rule is expected to find in them: positions, rows, a count, or none. Each
    case is reported on a line, with all differences. FOLDER may be a single case file. The exit code is 1 if a case
    fails or there are no cases.
    """
    target, begun = Path(folder), time.perf_counter()
    files = case_files(target)
    root = target if target.is_dir() else target.parent
    runner = CaseRunner(root, _options_of(compiling), compiling.fields)
    outcomes: dict[str, list[CaseOutcome]] = {}
    for path in files:
        of_file = outcomes.setdefault(path.relative_to(root).as_posix(), [])
        cases, errors = read_cases(path)
        for outcome in (_wrong(path, error) for error in errors):
            of_file.append(outcome)
            _report_case(root, outcome)
        for case in cases:
            for outcome in runner.run(case):
                of_file.append(outcome)
                _report_case(root, outcome)
    if junit is not None:
        _write_report(outcomes, Path(junit))
    all_outcomes = [each for of_file in outcomes.values() for each in of_file]
    counts = in_all(all_outcomes)
    parts = [f"{counts[AS_EXPECTED]:,} passed"]
    parts += [f"{n:,} {word}" for word, n in (("failed", counts[FAILED]), ("with an error", counts[ERROR])) if n]
    n_files = counted(len(files), "file")
    click.echo(
        f"{counted(len(all_outcomes), 'case')} in {n_files}: {', '.join(parts)}, {time.perf_counter() - begun:.2f} s"
    )
    say_notes(runner.notes)
    if target.is_dir():
        _say_untested(runner)
    return 0 if counts[AS_EXPECTED] == len(all_outcomes) else 1


def _options_of(compiling: QueryOptions) -> dict[str, Any]:
    """Return the options set on the command line, which apply to all cases."""
    names = ("time_column", "time_unit", "language", "missing_fields", "selection")
    options = {name: value for name in names if (value := getattr(compiling, name)) is not None}
    return (
        options
        if isinstance(compiling.type_column, OverridableDefault)
        else {**options, "type_column": compiling.type_column}
    )


def _wrong(path: Path, error: CerError) -> CaseOutcome:
    """Return the outcome of a file, or a case, that cannot be read."""
    return CaseOutcome(path, None, "reading the cases", None, ERROR, tuple(str(error).splitlines()))


def _report_case(root: Path, outcome: CaseOutcome) -> None:
    place = outcome.path.relative_to(root).as_posix()
    if outcome.status != AS_EXPECTED and outcome.line is not None:
        place = f"{place}:{outcome.line}"
    rule = "" if outcome.rule is None else f" [{outcome.rule}]"
    click.echo(f"{_SHOWN[outcome.status]} {printable(f'{place}: {outcome.name}{rule}')}")
    for line in outcome.differences:
        show_text(f"         {line}")


def _write_report(outcomes: dict[str, list[CaseOutcome]], path: Path) -> None:
    try:
        write_junit(outcomes, path)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written: {error.strerror}") from None


def _say_untested(runner: CaseRunner) -> None:
    try:
        names = runner.untested
    except CerError:  # reported by its cases
        return
    if names:
        say_notes([f"{counted(len(names), 'rule')} without a test case: {first_of(names)}"])
