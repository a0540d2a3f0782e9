"""Exceptions that only Spark causes, all subclasses of `cer_gpu.errors.CerError`, and plain errors of workers."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from cer_gpu.errors import CerError

INSTALL = "pip install 'cer-gpu[spark]'"


class SparkSetupError(CerError):
    """Failure to start Spark: a package or a Java is missing, too old or broken."""


class StreamSplitError(CerError):
    """Arrival of one stream at the stage in several partitions, each of which would count positions from 0."""


class SparkJobError(CerError):
    """Failure of a Spark job outside of the query: a missing path, a lost worker."""


_OURS = re.compile(r"^((?:cer_gpu|spark_glue)(?:\.\w+)*)\.(\w+): (.*)", re.MULTILINE | re.DOTALL)
_STACK = re.compile(
    r"^\s*(?:at [\w.$/]+\(|\.\.\. \d+ more|Caused by: |JVM stacktrace:|Driver stacktrace:)", re.MULTILINE
)
_STATE = re.compile(r"^\s*SQLSTATE: \w+[.;)]*\s*$| SQLSTATE: \w+; line \d+ pos \d+;?", re.MULTILINE)
"""Code that Spark adds to the message of a worker, and its position in a statement of SQL."""
_LOST = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure|OutOfMemoryError")

_WAITED = "Exception thrown in awaitResult:"
"""The message of an exception of Spark's driver whose cause is that of the tasks."""
_MAX_CAUSES = 8


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raise the `CerError` of a worker unchanged, and any other failure of Spark as a `SparkJobError` of a few lines.

    Examples
    --------
    >>> with plain_errors():  # doctest: +SKIP
    ...     match(flights, query, order_by="ts").show()
    """
    if "pyspark" not in sys.modules and "py4j" not in sys.modules:
        yield
        return
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    failures: tuple[type[Exception], ...] = (PySparkException, Py4JError)
    if "grpc" in sys.modules:  # Spark Connect: the server is gone, or refuses what it is sent
        failures += (sys.modules["grpc"].RpcError,)
    try:
        yield
    except failures as error:
        raise plain_error(error) from None


def plain_error(error: Exception) -> CerError:
    """Return the `CerError` that caused a failure of Spark."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        text = _text_of(java)
    ours = _OURS.search(text)
    if ours is not None:
        message = _STACK.split(_STATE.split(ours[3], maxsplit=1)[0], maxsplit=1)[0]
        kind = getattr(_module(ours[1]), ours[2], None)
        if isinstance(kind, type) and issubclass(kind, CerError):
            return kind(message.strip())
    lost = _LOST.search(text)
    text = _STATE.sub("", _STACK.split(text, maxsplit=1)[0])
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if "Traceback (most recent call last):" in text:
        lines = lines[-1:]  # the exception itself
    # drop the tree of the query plan that follows
    message = re.sub(r"^[\w.]+(Exception|Error): |SQLSTATE: \w+[.;]?$", "", " ".join(lines[:2])).strip()
    if lost is not None:
        return SparkJobError(
            f"a worker was lost: {message}\nhint: it may have run out of memory; more tasks, or a shorter window"
        )
    return SparkJobError(message or type(error).__name__)


def _text_of(java: Any) -> str:
    """Return what a Java exception and its causes say, from the first one on that says more than that there is one."""
    messages: list[str] = []
    while java is not None and len(messages) < _MAX_CAUSES:
        messages.append(str(java.toString()).strip())
        java = java.getCause()
    while len(messages) > 1 and messages[0].endswith(_WAITED):
        del messages[0]
    return "\nCaused by: ".join(messages)


def _module(name: str) -> ModuleType | None:
    """Return the module of these packages that an exception is from."""
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return None
