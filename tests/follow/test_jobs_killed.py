"""Jobs over what is new that are killed again and again: each row once, none lost, in tables and in files."""

import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from follow.jobs import END, PLACES, Job
from sizes import scaled
from written_tables import use_catalogue

TESTS = Path(__file__).parents[1]
N_KILLS = int(os.environ.get("CER_GPU_JOB_KILLS", scaled(50)))
"""Number of kills, of each kind of source and target; `make test-soak` kills 100 each."""


def run_job(arguments, environment):
    """Run the command in a process that was forked from one that has imported all."""
    from follow.warm_job import run_job

    run_job(arguments, environment)


processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["follow.warm_job"])  # each run is forked from a process that has imported all


def killed(job, rng, whole):
    """Start a run, and kill it while `whole` seconds pass, which a whole one takes; None: do not.

    Returns True if it was killed amid a step, and None if it was done.
    """
    job.add_some()
    run = processes.Process(target=run_job, args=(job.args, dict(os.environ)))
    run.start()
    run.join(None if whole is None else 1.3 * rng.random() * whole)
    run.kill()
    run.join()
    code = run.exitcode
    run.close()
    assert code in (0, -signal.SIGKILL)
    state = job.folder / "state"
    return None if code == 0 else any(state.glob("rows-*")) or any(job.folder.glob("found/.part-*"))


@pytest.mark.skipif(os.name != "posix", reason="it kills processes")
@pytest.mark.parametrize("kind", PLACES)
def test_a_job_killed_at_any_time_writes_each_row_once(kind, tmp_path, monkeypatch):
    # processes prepare themselves by the main module, for which IPython, in another test, puts one that has no spec
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (TESTS, TESTS.parent))))  # the server imports by it
    job = Job(tmp_path, kind, use_catalogue(monkeypatch, tmp_path) if kind == "iceberg" else None)
    rng, amid, n_done = random.Random(kind), [], 0
    for _ in range(2):  # the first one starts the process that others are forked from
        began = time.perf_counter()
        assert killed(job, rng, None) is None
        whole = time.perf_counter() - began
    while len(amid) < N_KILLS:
        found = killed(job, rng, whole)
        n_done += found is None
        amid += [] if found is None else [found]
    job.add(END)
    code, _, said = job.run()
    assert code == 0, said
    expected = job.expected
    print(f"{len(amid)} kills, {sum(amid)} amid a step, {n_done} runs were done, {job.n_commits} commits, "
          f"{job.n_events} events, {len(expected)} rows, {whole:.2f} s a run")  # fmt: skip
    assert len(expected) > min(5 * N_KILLS, 1000)
    assert job.found == expected
