"""Queries over relations of DuckDB, with relations of the same connection as results.

>>> import duckdb, cer_gpu.duckdb
>>> events = duckdb.sql("SELECT * FROM (VALUES ('A'), ('B')) AS t(type)")
>>> cer_gpu.duckdb.match(events, "SELECT * FROM S WHERE A ; B").fetchall()
[(0, 1, [0, 1])]
"""

from cer_gpu.frames.frame_matching import count, explain, match

__all__ = ["count", "explain", "match"]
