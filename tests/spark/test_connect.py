"""What works on Spark Connect, against a server on this machine, in a process of its own (`connect_session`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'cer-gpu[spark]'")

pytestmark = pytest.mark.long("starts a server of Spark Connect")

HERE = Path(__file__).parent
PROGRAM = HERE / "connect_session.py"


def names():
    return re.findall(r"^    def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The errors of all checks by their names."""
    folder = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE.parent)])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[-1])


@pytest.mark.parametrize("name", names())
def test_on_spark_connect(told, name):
    assert told[name] is None, told[name]
