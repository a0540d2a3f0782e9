"""``df.cer.match(query)`` for DataFrames of pandas, once this module is imported.

>>> import pandas as pd, cer_gpu.pandas
>>> events = pd.DataFrame({"type": ["A", "B"]})
>>> events.cer.match("SELECT * FROM S WHERE A ; B")[["start", "end"]].to_dict("records")
[{'start': 0, 'end': 1}]
"""

import pandas

from cer_gpu.frames.accessors import NAME, Accessor
from cer_gpu.frames.frame_matching import count, explain, match

__all__ = ["count", "explain", "match"]

if not hasattr(pandas.DataFrame, NAME):
    pandas.api.extensions.register_dataframe_accessor(NAME)(Accessor)
