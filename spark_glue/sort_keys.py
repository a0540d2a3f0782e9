"""Keys by which Arrow sorts the values of a column as Spark does: NULL first, NaN last, -0.0 as 0.0.

This module needs no Spark.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_MOST = np.int64(2**63 - 1)


def sort_key(values: pa.Array) -> pa.Array:
    """Return values that ascend as Spark orders those of a column; NULL stays NULL.

    Parameters
    ----------
    values
        Numbers, times, booleans or strings (also with a dictionary).

    Returns
    -------
    pyarrow.Array
        Integers for booleans and floats; other values as they are.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if not pa.types.is_floating(values.type):
        return values
    floats = values.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
    bits = np.where(np.isnan(floats), np.float64(np.nan), floats).view(np.int64)
    # a negative float has a greater magnitude the less it is
    keys = np.where(bits < 0, bits ^ _MOST, bits)
    return pa.array(keys, mask=values.is_null().to_numpy(zero_copy_only=False))
