"""A folder to work in, and the command line in this process."""

import io
import sys

import pyarrow.parquet as pq
import pytest
from command_line import EVENTS

from cer_gpu.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder with events.parquet, with COLUMNS unset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    pq.write_table(EVENTS, "events.parquet")
    return tmp_path


@pytest.fixture
def cli(capsys):
    """Run the command line in this process; return its exit code, stdout and stderr."""

    def run(*args):
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.fixture
def piped(monkeypatch):
    """Run the command line in this process with bytes on standard input; return its exit code, stdout and stderr."""

    def run(*args, stdin=b""):
        with monkeypatch.context() as patch:
            for name, data in ("stdin", stdin), ("stdout", b""), ("stderr", b""):
                patch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", write_through=True))
            code = main([str(a) for a in args])
            out, err = sys.stdout.buffer.getvalue(), sys.stderr.buffer.getvalue().decode()
        assert "Traceback" not in err
        return code, out, err

    return run
