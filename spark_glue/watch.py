"""Watch over jobs of Spark: a bar on the terminal while they run, and their stages afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cer_gpu.printable import printable

if TYPE_CHECKING:
    from pyspark import SparkContext

_EVERY = 0.25
"""Seconds between two updates of the bar."""
LONGEST_WAIT = 10
"""Seconds to wait for cancelled jobs to end."""


@dataclass(frozen=True)
class Stage:
    """Completed stage of a job.

    Attributes
    ----------
    number, n_tasks
    seconds
        Run time of its tasks, summed.
    shuffled
        Bytes written for the next stage.
    """

    number: int
    n_tasks: int
    seconds: float
    shuffled: int


@contextlib.contextmanager
def progress(context: SparkContext, *, hidden: bool = False) -> Iterator[None]:
    """Show what runs and the tasks of its stage, from Spark's tracker, on standard error if that is a terminal."""
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    done = threading.Event()
    with Progress(*columns, console=console, transient=True) as shown:
        bar = shown.add_task("waiting for Spark", total=None)

        def look() -> None:
            tracker = context.statusTracker()
            while not done.wait(_EVERY):
                with contextlib.suppress(Exception):  # the session may be stopping
                    for number in tracker.getActiveStageIds():
                        stage = tracker.getStageInfo(number)
                        if stage is not None:
                            shown.update(
                                bar,
                                description=described_stage(context, number),
                                completed=stage.numCompletedTasks,
                                total=stage.numTasks,
                            )

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def described_stage(context: SparkContext, number: int) -> str:
    """Return what the job of a running stage does, in the words of Spark's pages, or else the stage's number."""
    with contextlib.suppress(Exception):  # the store is not part of Spark's public interface
        words = context._jsc.sc().statusStore().lastStageAttempt(number).description()
        if words.isDefined():
            return printable(str(words.get()))
    return f"stage {number}, tasks"


@contextlib.contextmanager
def cancelling(context: SparkContext) -> Iterator[None]:
    """Cancel the jobs of the block if it ends by an exception, and wait for their end."""
    tag = f"cer_gpu-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    others = set(context.statusTracker().getActiveJobsIds())
    try:
        yield
    except BaseException:

        def cancel() -> None:
            context.cancelJobsWithTag(tag)
            until = time.monotonic() + LONGEST_WAIT
            while set(context.statusTracker().getActiveJobsIds()) - others and time.monotonic() < until:
                time.sleep(0.1)

        with contextlib.suppress(Exception):
            in_another_thread(cancel)
        raise
    finally:
        with contextlib.suppress(Exception):
            context.removeJobTag(tag)


def in_another_thread(action: Callable[[], object]) -> None:
    """Call a function on a new thread: an interrupt may have broken this thread's connection to Java."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(action).result()


def stages_since(context: SparkContext, first: int) -> list[Stage]:
    """Return the completed stages from number `first` on, or none if Spark's store cannot be read."""
    try:
        store = context._jsc.sc().statusStore()
        gateway: Any = context._gateway
        quantiles = gateway.new_array(gateway.jvm.double, 0)
        stage_list = store.stageList(None, False, False, quantiles, gateway.jvm.java.util.ArrayList())
        stages = [stage_list.apply(i) for i in range(stage_list.size())]
        return sorted(
            (
                Stage(s.stageId(), s.numTasks(), s.executorRunTime() / 1000, s.shuffleWriteBytes())
                for s in stages
                if s.stageId() >= first and s.status().toString() == "COMPLETE"
            ),
            key=lambda stage: stage.number,
        )
    except Exception:  # the store is not part of Spark's public interface
        return []


def next_stage(context: SparkContext) -> int:
    """Return a lower bound of the numbers of the stages to come."""
    return max((stage.number + 1 for stage in stages_since(context, 0)), default=0)
