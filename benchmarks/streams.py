"""Seeded streams of events."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

TYPES = list("ABCDEFGHI")


def random_types(
    n_events: int, *, seed: int = 0, shares: dict[str, float] | None = None, plain: bool = False
) -> pa.Table:
    """Return events of nine types A to I and one float column x, uniform in [0, 1).

    Parameters
    ----------
    shares
        The share of some types; the others share the rest evenly.
    plain
        Strings instead of a dictionary in the column "type".
    """
    rng = np.random.default_rng(seed)
    given = shares or {}
    rest = (1 - sum(given.values())) / (len(TYPES) - len(given))
    chance = np.array([given.get(name, rest) for name in TYPES])
    codes = rng.choice(len(TYPES), n_events, p=chance).astype(np.int32)
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(TYPES))
    return pa.table({"type": types.cast(pa.string()) if plain else types, "x": rng.random(n_events)})
