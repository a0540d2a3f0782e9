"""Seeded streams of events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TYPES = "ABCDEFGHI"


def random_types(
    n_events: int,
    *,
    seed: int = 0,
    names: Sequence[str] = TYPES,
    shares: dict[str, float] | None = None,
    plain: bool = False,
    n_keys: int | None = None,
    texts: bool = False,
    by_key: bool = False,
) -> pa.Table:
    """Return events of random types and one float column x, uniform in [0, 1).

    Parameters
    ----------
    names
        Names of the types.
    shares
        Share of the events of some types; the others share the rest evenly.
    plain
        True: the column "type" holds strings instead of a dictionary.
    n_keys
        Number of different keys, one of which is drawn for each event, in a column "key"; None: no such column.
    texts
        True: keys are texts instead of integers.
    by_key
        True: all events of a key come one after another, in the order of the keys.
    """
    rng = np.random.default_rng(seed)
    given = shares or {}
    others = len(names) - len(given)
    rest = (1 - sum(given.values())) / others if others else 0.0
    chance = np.array([given.get(name, rest) for name in names])
    codes = rng.choice(len(names), n_events, p=chance / chance.sum()).astype(np.int32)
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(names)))
    table = pa.table({"type": types.cast(pa.string()) if plain else types, "x": rng.random(n_events)})
    if n_keys is None:
        return table
    drawn = rng.integers(0, n_keys, n_events)
    keys = pa.array(np.sort(drawn) if by_key else drawn)
    return table.append_column("key", pc.binary_join_element_wise("user-", keys.cast("string"), "") if texts else keys)


def repeated(n_events: int, **options: object) -> pa.Table:
    """Return a million random events, repeated up to `n_events` without copies."""
    part = random_types(min(n_events, 1 << 20), **options)  # type: ignore[arg-type]
    return pa.concat_tables([part] * -(-n_events // len(part))).slice(0, n_events)


def never_after(n_events: int, first: str, then: str, instead: str, names: Sequence[str] = TYPES) -> pa.Table:
    """Return random events in which one type never comes directly after another one."""
    table = random_types(n_events, names=names)
    types = table["type"].combine_chunks()
    codes = types.indices.to_numpy().copy()
    after = np.flatnonzero(codes[:-1] == names.index(first)) + 1
    codes[after[codes[after] == names.index(then)]] = names.index(instead)
    return table.set_column(0, "type", pa.DictionaryArray.from_arrays(pa.array(codes), types.dictionary))


def before_the_last(n_events: int, names: Sequence[str], last: str) -> pa.Table:
    """Return random events, followed by one event of another type."""
    types = random_types(n_events - 1, names=names)["type"].to_pylist()
    return pa.table({"type": pa.array([*types, last]).dictionary_encode()})


def blocks(copies: dict[str, int]) -> pa.Table:
    """Return events of the first type, then of the next, and so on, as many as `copies` says of each."""
    return pa.table({"type": [name for name, n in copies.items() for _ in range(n)]})
