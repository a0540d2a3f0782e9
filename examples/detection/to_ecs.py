"""Write Windows events under the names of the Elastic Common Schema, by ecs.sql and DuckDB.

    python to_ecs.py windows.parquet ecs.parquet

The events may be a pattern of several files, such as "logs/*.parquet".
"""

import sys
from pathlib import Path

import duckdb


def main(events: str, out: str) -> None:
    """Write the events to a Parquet file."""
    named = Path(__file__).with_name("ecs.sql").read_text(encoding="utf-8")
    target = out.replace("'", "''")
    duckdb.execute(f"COPY ({named}) TO '{target}' (FORMAT parquet)", {"events": events})


if __name__ == "__main__":
    main(*sys.argv[1:])
