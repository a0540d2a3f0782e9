"""Settings of all property tests, and how many random cases they were."""

import os
import sys

from hypothesis import settings

# the first example of a test may compile kernels; a run in CI is the same each time
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_terminal_summary(terminalreporter):
    strategies = sys.modules.get("strategies")
    if strategies is not None and strategies.n_cases["passed"]:
        terminalreporter.write_line(f"{strategies.n_cases['passed']:,} random cases passed")
