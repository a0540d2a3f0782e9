"""Queries over frames, with results of the same kind: Polars, pandas, DuckDB, pyarrow, and others by narwhals."""

from cer_gpu.frames.frame_matching import count, explain, fit, forecast, match

__all__ = ["count", "explain", "fit", "forecast", "match"]
