"""Large sets that copies of this process make ready, compared with sets that one process makes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from sizes import scaled
from test_prepared_sets import compiled, kept_from_the_first_query_on, random_texts  # noqa: F401
from test_query_set import random_events

import cer_gpu
from cer_gpu.preparing import copies, sets

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
WRONG = "SELECT * FROM S WHERE"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[copies.ProcessCopy]:
    """The copies that are started, two for each set."""
    found: list[copies.ProcessCopy] = []
    make = sets._start_copy

    def noting(serve: Callable[[bytes], bytes]) -> copies.ProcessCopy | None:
        copy = make(serve)
        assert copy is not None
        found.append(copy)
        return copy

    monkeypatch.setattr(sets, "_start_copy", noting)
    monkeypatch.setattr(sets, "processes_for", lambda n_queries: 3)
    return found


def is_there(copy: copies.ProcessCopy) -> bool:
    try:
        os.kill(copy.pid, 0)
    except ProcessLookupError:
        return False
    return True


def evaluated_alone(texts: dict[str, str], events: pa.Table) -> dict[str, pa.Table]:
    return {name: compiled({name: text})[name].evaluate(events, threads=1) for name, text in texts.items()}


@pytest.mark.parametrize("seed", range(scaled(8, most=100)))
def test_sets_made_by_copies_find_what_each_query_finds(seed: int, started: list[copies.ProcessCopy]) -> None:
    rng = random.Random(seed)
    texts, events = random_texts(rng), random_events(rng, rng.randint(0, 100))
    queries = compiled(texts)
    assert list(queries) == list(texts)
    assert len(started) == 2
    found = queries.evaluate(events)
    assert not any(map(is_there, started)), "they end when they have answered"
    assert list(found) == list(texts)
    again = compiled(texts).evaluate(events)
    for name, table in evaluated_alone(texts, events).items():
        assert found[name].equals(table), texts[name]
        assert again[name].equals(table), "as it was kept"


def test_what_copies_make_is_kept_as_one_process_keeps_it(
    started: list[copies.ProcessCopy], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = random.Random(5)
    texts, events = random_texts(rng), random_events(rng, 20)
    facts = []
    for place, n_processes in (("a", 3), ("b", 1)):
        (tmp_path / place).mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
        monkeypatch.setattr(sets, "processes_for", lambda n_queries, n=n_processes: n)
        queries = compiled(texts)
        over = queries._over_schema(events.schema, {})
        shown = [
            (name, each.guards, each.result_schema, each.pruning_columns, each.sleeps)
            for name, each in over.queries.items()
        ]
        facts.append(([(name, query.facts) for name, query in queries._queries.items()], shown))  # type: ignore[attr-defined]
    assert len(started) == 2
    assert facts[0] == facts[1]


def test_errors_are_those_of_one_process(started: list[copies.ProcessCopy]) -> None:
    rng = random.Random(7)
    texts, events = random_texts(rng), random_events(rng, 20)
    for place in range(3):
        names = list(texts)
        wrong = {**dict(list(texts.items())[:place]), "wrong": WRONG, **{name: texts[name] for name in names[place:]}}
        with pytest.raises(cer_gpu.QuerySyntaxError, match="'wrong'"):
            compiled(wrong)
        rules = compiled(wrong | {"none": "SELECT * FROM S WHERE A AS a FILTER a[none[0] = 1]"}, errors="skip")
        assert set(rules.skipped) == {"wrong", "none"}
        assert list(rules.evaluate(events)) == names


@pytest.mark.long("starts and kills processes")
@pytest.mark.parametrize("when", ["compiling", "compiled"])
def test_the_part_of_a_copy_that_is_killed_is_made_here(
    when: str, started: list[copies.ProcessCopy], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(11)
    texts, events = random_texts(rng), random_events(rng, 50)
    if when == "compiling":
        make = sets._start_copy

        def killed(serve: Callable[[bytes], bytes]) -> copies.ProcessCopy | None:
            copy = make(serve)
            assert copy is not None
            os.kill(copy.pid, signal.SIGKILL)
            return copy

        monkeypatch.setattr(sets, "_start_copy", killed)
    queries = compiled(texts)
    for copy in started:
        if when == "compiled":
            os.kill(copy.pid, signal.SIGKILL)
    found = queries.evaluate(events)
    for name, table in evaluated_alone(texts, events).items():
        assert found[name].equals(table), texts[name]


def test_a_copy_that_raises_is_as_one_that_was_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: bytes) -> bytes:
        raise RuntimeError(request)

    copy = copies.ProcessCopy(fail)
    copy.ask(b"once")
    assert copy.result() is None
    copy.ask(b"again")
    assert copy.result() is None
    copy.close()


def test_a_copy_that_is_asked_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "IDLE_SECONDS", 0.05)
    copy = copies.ProcessCopy(lambda request: request)
    assert os.waitpid(copy.pid, 0)[0] == copy.pid
    copy.close()


def test_one_caller_alone_has_the_second_answer() -> None:
    copy = copies.ProcessCopy(lambda request: request * 100_000)
    copy.ask(b"ab")
    assert copy.result() == b"ab" * 100_000
    assert [copy.claim(), copy.claim()] == [True, False]
    copy.close()
    assert not is_there(copy)


def test_there_are_no_copies_beside_other_threads_or_of_small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert copies.processes_for(copies.FROM_QUERIES_COPIED) == 3
    assert copies.processes_for(copies.FROM_QUERIES_COPIED - 1) == 1
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert copies.processes_for(10_000) == 1


def test_the_thread_of_the_command_line_that_waits_for_signals_hinders_no_copies():
    """In a process of its own: that thread stays to its end."""
    code = (
        "import os\n"
        "from cer_gpu.cli.signals import Signals\n"
        "from cer_gpu.preparing import copies\n"
        "os.sched_getaffinity = lambda pid: {0, 1, 2}\n"
        "with Signals(lambda signum: None):\n"
        "    print(copies.processes_for(copies.FROM_QUERIES_COPIED))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
