"""Errors on the page docs/reference/errors.md: they are those that really happen."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytestmark = pytest.mark.long("makes every error of the package, in a process")

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own messages are those of Linux")
def test_the_page_of_errors_is_what_its_script_makes():
    pinned = next(
        line.removeprefix("pyarrow==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("pyarrow==")
    )
    if pa.__version__ != pinned:
        pytest.skip(f"the page has messages of pyarrow {pinned}, and this is {pa.__version__}")
    script = [sys.executable, str(ROOT / "docs" / "make_errors.py"), "--check"]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
