"""Ask CORE through its Python bindings, in an interpreter that has them; started by ``peers.py``, as described there.

It needs nothing but the bindings.  The offline server evaluates behind the call that sends events, so the clock stops
once its output, a line for each complex event, is complete.
"""

from __future__ import annotations

import array
import importlib.metadata
import time
from pathlib import Path

from answering import Facts, answer


def ask(question: Facts) -> Facts:
    """Return the seconds that a query takes, and the number of matches that it finds."""
    import pycer

    names, folder = list(question["names"]), Path(str(question["folder"]))  # type: ignore[call-overload]
    codes, values = (folder / "types").read_bytes(), array.array("d", (folder / "x").read_bytes())
    server = pycer.PyOfflineServer()
    kinds = sorted({*names, *"ABCDEFGHI"})
    declared = ", ".join(f"EVENT {kind} {{ x:double }}" for kind in kinds)
    stream = server.declare_stream(f"CREATE STREAM S {{ {declared} }}")
    numbers = {event.name: event.id for event in stream.events_info}
    server.add_query(question["text"])
    of_code = [numbers[name] for name in names]
    events = [pycer.PyEvent(of_code[c], [pycer.PyDoubleValue(x)]) for c, x in zip(codes, values, strict=True)]
    begun = time.perf_counter()
    server.send_events(events)
    output = server.get_output()
    return {"seconds": time.perf_counter() - begun, "found": output.count("\n")}


def name() -> str:
    """Return the name of this peer, with its version."""
    import pycer  # noqa: F401

    return f"CORE (pycer {importlib.metadata.version('pycer')})"


if __name__ == "__main__":
    answer(ask, name)
