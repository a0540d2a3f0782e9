"""Sessions of Spark, classic and Spark Connect, behind one interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cer_gpu.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONING = ("Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort")
"""Nodes of a plan that change the partitions and the order of rows only."""
_DESCRIPTION = "spark.job.description"
_SHORT = 60
_tasks_at_once: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def is_connect(of: object) -> bool:
    """Return True for a DataFrame or a session of Spark Connect."""
    return type(of).__module__.startswith("pyspark.sql.connect.")


def require_classic(of: object, what: str, hint: str) -> None:
    """Refuse Spark Connect.

    Parameters
    ----------
    of
        A DataFrame or a session.
    what
        The function that needs a classic session, with the reason.
    hint

    Raises
    ------
    OptionError
    """
    if is_connect(of):
        raise OptionError(f"{what}, and this session is one of Spark Connect\nhint: {hint}")


def active_session() -> SparkSession:
    """Return the active session.

    Raises
    ------
    OptionError
        If there is none.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise OptionError(
            "events named by paths need a session of Spark, and none is active\nhint: spark_glue.session()"
        )
    return session


def tasks_at_once(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at once, as far as Spark reports it."""
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    n_tasks = _tasks_at_once.get(spark)
    if n_tasks is None:
        configured = spark.conf.get("spark.default.parallelism", None)
        n_tasks = _tasks_at_once[spark] = int(configured) if configured else _partitions(spark.range(1 << 10))
    return n_tasks


def most_tasks_at_once(spark: SparkSession, n_tasks: int) -> int:
    """Return the most of some tasks that may run at once: all of them where Spark adds executors as tasks wait."""
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return n_tasks
    return min(tasks_at_once(spark), n_tasks)


def _partitions(df: DataFrame) -> int:
    from pyspark.sql import functions as sf

    return len(df.select(sf.spark_partition_id()).distinct().collect())


def settings(spark: SparkSession, beginnings: Iterable[str]) -> dict[str, str]:
    """Return the settings of Hadoop whose names begin with some prefixes.

    On Spark Connect these are the ones that the session was given as ``spark.hadoop.*`` or itself has.
    """
    beginnings = tuple(beginnings)
    if not beginnings:
        return {}
    if is_connect(spark):
        configured = {name.removeprefix("spark.hadoop."): value for name, value in spark.conf.getAll.items()}
        return {name: str(value) for name, value in configured.items() if name.startswith(beginnings)}
    java: Any = spark._jsparkSession
    configuration = java.sessionState().newHadoopConf()
    return {
        f"{beginning}{name}": str(value)
        for beginning in beginnings
        for name, value in configuration.getPropsWithPrefix(beginning).items()
    }


@contextlib.contextmanager
def job_description(spark: SparkSession, words: str) -> Iterator[None]:
    """Describe the jobs of the block in Spark's pages, unless they have a description; on Spark Connect do nothing."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    if before is None:
        context.setJobDescription(words)
    try:
        yield
    finally:
        if before is None:
            with contextlib.suppress(Exception):  # the session may have stopped meanwhile
                context.setLocalProperty(_DESCRIPTION, None)  # type: ignore[arg-type]


def java_strings(spark: SparkSession, strings: Any) -> list[str]:
    """Return an array of strings of Java, without newlines, by one call: py4j asks for each element by two."""
    jvm: Any = spark.sparkContext._jvm
    # py4j finds no method that takes an array of strings as one of objects, and this one takes any object
    joined = str(jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(strings).mkString("\n"))
    return joined.split("\n") if joined else []


def short(text: str) -> str:
    """Return a query as a few words of one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 3]}..."
