"""``df.cer.match(query)`` for DataFrames and LazyFrames of Polars, once this module is imported.

>>> import polars as pl, cer_gpu.polars
>>> events = pl.LazyFrame({"type": ["A", "B"]})
>>> events.cer.match("SELECT * FROM S WHERE A ; B").collect().rows()
[(0, 1, [0, 1])]
"""

import polars

from cer_gpu.frames.accessors import NAME, Accessor
from cer_gpu.frames.frame_matching import count, explain, match

__all__ = ["count", "explain", "match"]

if not hasattr(polars.DataFrame, NAME):
    polars.api.register_dataframe_namespace(NAME)(Accessor)
    polars.api.register_lazyframe_namespace(NAME)(Accessor)
