"""Files of forecasts: an Arrow IPC file with a row for each context, and all else as JSON in its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cer_gpu.errors import OptionError
from cer_gpu.forecast.lengths import Horizon
from cer_gpu.forecast.reading import StateForm
from cer_gpu.forecast.tree import ContextTree
from cer_gpu.io.sinks import naming, result_file

_KEY = b"cer_gpu.forecast"
_VERSION = 1
"""Version of the layout; a file of another one cannot be read."""
_NUMBERS = ("levels", "contexts", "parents", "cases")


def save_forecast(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, whole or not at all."""
    tree, form = model._tree, model._form
    columns: dict[str, pa.Array] = {name: pa.array(getattr(tree, name)) for name in _NUMBERS}
    columns["states"] = pa.array(model._facts["words"], pa.string())
    columns["time"] = pa.nulls(len(tree), model._facts["time_type"] or pa.null())
    for kind in tree.ended:
        columns[f"ended_{kind}"] = _list_column(tree.ended[kind])
        columns[f"known_{kind}"] = _list_column(tree.observed[kind])
    facts = {
        "version": _VERSION,
        "query": model.query.compile_options,
        "form": {"order": form.order, "ages": form.ages, "width": form.width, "words": [hex(w) for w in form.words]},
        "lengths": [[each.text, each.kind, each.amount] for each in model._lengths],
        "edges": {kind: edges.tolist() for kind, edges in model._edges.items()},
        "about": model._facts["about"],
        "n_ends": model._facts["n_ends"],
    }
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(facts).encode()})
    with naming(str(path)), result_file(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_forecast(path: str | os.PathLike[str], compiled: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Return the arguments of `Forecast` from a file; `compiled` compiles its query from the options of `compile`.

    Raises
    ------
    OptionError
        When it is no such file, or one of another version.
    """
    shown = os.fspath(path)
    try:
        with pa.OSFile(shown, "rb") as file, pa.ipc.open_file(file) as reader:
            table = reader.read_all()
        facts = json.loads((table.schema.metadata or {})[_KEY])
    except FileNotFoundError:
        raise OptionError(f"{shown}: there is no such file") from None
    except (pa.ArrowInvalid, OSError, KeyError, ValueError):
        raise OptionError(f"{shown}: expected a file that Forecast.save wrote, found another one") from None
    if facts["version"] != _VERSION:
        raise OptionError(
            f"{shown}: is of version {facts['version']}, and this program reads version {_VERSION}\nhint: fit it again"
        )
    form = facts["form"]
    words = tuple(int(word, 16) for word in form["words"])
    kinds = [kind for kind in facts["edges"] if f"ended_{kind}" in table.schema.names]
    levels, contexts, parents, cases = (table.column(name).to_numpy() for name in _NUMBERS)
    tree = ContextTree(
        StateForm(form["order"], 1, 0.0).bits,
        levels,
        contexts,
        parents,
        cases,
        {kind: _matrix(table.column(f"ended_{kind}"), np.float64) for kind in kinds},
        {kind: _matrix(table.column(f"known_{kind}"), np.int64) for kind in kinds},
    )
    time_type = table.schema.field("time").type
    return {
        "query": compiled(facts["query"]),
        "form": StateForm(form["order"], form["ages"], form["width"], words),
        "lengths": tuple(Horizon(*each) for each in facts["lengths"]),
        "edges": {kind: np.array(edges, np.int64) for kind, edges in facts["edges"].items()},
        "tree": tree,
        "facts": {
            "n_ends": facts["n_ends"],
            "time_type": None if pa.types.is_null(time_type) else time_type,
            "words": table.column("states").to_pylist(),
            "about": facts["about"],
        },
    }


def _list_column(matrix: Any) -> pa.Array:
    width = matrix.shape[1]
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), width)


def _matrix(column: pa.ChunkedArray, kind: Any) -> Any:
    array = column.combine_chunks()
    return array.flatten().to_numpy().astype(kind).reshape(len(array), -1)
