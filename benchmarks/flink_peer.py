"""Ask Flink SQL through PyFlink, in an interpreter that has it, with Java; started by ``peers.py``, as described there.

The question differs from that of CEQL: MATCH_RECOGNIZE gives at most one match for each event that starts one, and with
reluctant quantifiers that of the first event B after it and the first C after that.  Only the number of matches, one
for each start of matches, is compared.  A window of n events is one of n + 1 milliseconds, as the events are a
millisecond apart and Flink's window excludes its end, unlike WITHIN.  The clock runs from the statement to the last
match, in a process that has run the statement once on a few events.
"""

from __future__ import annotations

import importlib.metadata
import time
from pathlib import Path

from answering import Facts, answer


def ask(question: Facts) -> Facts:
    """Return the seconds that the query takes, and the number of matches that it finds."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    names, folder = list(question["names"]), Path(str(question["folder"]))  # type: ignore[call-overload]
    lines = [f"{p},{names[code]}\n" for p, code in enumerate((folder / "types").read_bytes())]
    within = (int(str(question["window"])) + 1) / 1000
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    seconds, n_found = 0.0, 0
    for name, part in (("few", lines[:100]), ("events", lines)):
        (folder / f"{name}.csv").write_text("".join(part), encoding="ascii")
        tables.execute_sql(
            f"""
            CREATE TABLE {name} (p BIGINT, type STRING, ts AS TO_TIMESTAMP_LTZ(p, 3), WATERMARK FOR ts AS ts)
            WITH ('connector' = 'filesystem', 'path' = '{(folder / name).as_uri()}.csv', 'format' = 'csv')
            """
        )
        begun = time.perf_counter()
        found = tables.execute_sql(
            f"""
            SELECT a, b, c FROM {name} MATCH_RECOGNIZE (
                ORDER BY ts MEASURES A.p AS a, B.p AS b, C.p AS c ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
                PATTERN (A X*? B Y*? C) WITHIN INTERVAL '{within:.3f}' SECOND
                DEFINE A AS A.type = 'A', B AS B.type = 'B', C AS C.type = 'C'
            )
            """
        )
        n_found = sum(1 for _ in found.collect())
        seconds = time.perf_counter() - begun
    return {"seconds": seconds, "found": n_found}


def name() -> str:
    """Return the name of this peer, with its version."""
    import pyflink.table  # noqa: F401

    return f"Flink SQL {importlib.metadata.version('apache-flink')}, one match for each start"


if __name__ == "__main__":
    answer(ask, name)
