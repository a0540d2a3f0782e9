"""Files of events damaged at random: each is read or raises a CerError, in bounded time, and none ends the process."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_files import FILES
from sizes import scaled, seeds

PROGRAM = Path(__file__).parent.parent / "damaged_files.py"
N_CASES = scaled(40, most=6000)
"""Number of cases of each file; `make test-soak` tries 6,000."""
SECONDS = 200
"""Most seconds of a case: the first ones compile loops, which takes a minute on a machine under load."""


class Worker:
    """A process that tries cases, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")

    def attempt(self, case: str) -> tuple[str, str]:
        """Return the outcome of a case, and a message."""
        print(case, file=self._process.stdin, flush=True)
        try:
            line = self._said.get(timeout=SECONDS)
        except queue.Empty:
            return "hung", f"after {SECONDS} s"
        if line:
            found = json.loads(line)
            return found["outcome"], found["text"]
        code = self._process.wait()
        return "died", f"of signal {-code}: {self._process.stderr.read()}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._reader.join()
        self._process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    for name, make in FILES.items():
        (folder / name).write_bytes(make())
    return folder


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> Iterator[Counter[str]]:
    yield (counter := Counter[str]())
    if sum(counter.values()) >= 100:
        assert min(counter["read"], counter["refused"]) > 20, counter  # both ways were taken


@pytest.fixture(scope="module")
def workers(folder: Path) -> Iterator[list[Worker]]:
    workers = [Worker(folder)]
    yield workers
    workers[0].close()


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_or_does_no_harm(
    folder: Path, workers: list[Worker], outcomes: Counter[str], name: str
) -> None:
    failures = []
    for seed in seeds(N_CASES):
        outcome, text = workers[0].attempt(f"{name} {seed}")
        outcomes[outcome] += 1
        if outcome in ("died", "hung"):
            workers[0].close()
            workers[0] = Worker(folder)
        if text:
            failures.append(f"{name} {seed} {outcome}: {text}")
    assert not failures, f"{len(failures)} of {N_CASES} cases\n" + "\n".join(failures[:5])
