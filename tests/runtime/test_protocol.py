"""The protocol of runtimes: only the registry knows their classes; attributes tell what they need."""

import ast
from pathlib import Path

import numpy as np
import pytest

import cer_gpu
from cer_gpu.runtime.events import RelevantEvents
from cer_gpu.runtime.protocol import Runtime
from cer_gpu.runtime.registry import RUNTIMES

ROOT = Path(cer_gpu.__file__).parent


def nodes_of(path, *names):
    """Return all nodes of a module, none if its text has none of the names: most modules need not be parsed."""
    text = path.read_text(encoding="utf-8")
    return list(ast.walk(ast.parse(text))) if any(name in text for name in names) else []


def test_only_the_registry_imports_runtimes():
    modules = {made.__module__ for made in RUNTIMES.values()}
    importers = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(["cer_gpu", *path.relative_to(ROOT).with_suffix("").parts])
        for node in nodes_of(path, *modules):
            if isinstance(node, ast.ImportFrom) and node.module in modules:
                importers.setdefault(module, set()).add(node.module)
    assert importers.pop("cer_gpu.runtime.registry") == modules
    # the stacks of partitions list as those of a whole stream do, a window is evaluated as a stream is, large counts
    # are those of partial matches, pending ones of a pattern with quantifiers are reported as those of a chain are, and
    # pairs are kept as instances are
    assert importers == {
        "cer_gpu.runtime.pairs": {"cer_gpu.runtime.instances"},
        "cer_gpu.runtime.parallel.conjunction_counter": {"cer_gpu.runtime.parallel.products"},
        "cer_gpu.runtime.keyed_stacks": {"cer_gpu.runtime.stacks"},
        "cer_gpu.runtime.recent.graph_run": {"cer_gpu.runtime.recent.run"},
        "cer_gpu.runtime.window_choice": {"cer_gpu.runtime.run", "cer_gpu.runtime.counter"},
    }


def test_no_function_asks_for_the_class_of_a_runtime():
    names = {made.__name__ for made in [Runtime, *RUNTIMES.values()]}
    for path in [*ROOT.rglob("*.py"), *(ROOT.parent / "spark_glue").rglob("*.py")]:
        for node in nodes_of(path, *names):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                assert not asked & names, f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_that_keeps_partitions_can_drop_them(name):
    made = RUNTIMES[name]
    for method in ("idle", "keep_partitions", "reserve_partitions"):
        assert (getattr(made, method) is not getattr(Runtime, method)) == made.keeps_partitions
    if made.engine != "counter":
        assert made.live is not Runtime.live


def test_attributes_travel_with_their_events():
    n = 6
    numbers, none = np.arange(n), np.empty(0, np.int64)
    attributes = np.arange(3 * n).reshape(n, 3)
    positions = numbers * (1 << 28)
    events = RelevantEvents(
        numbers.astype(np.int32), positions, none, none, none.astype(np.int32), none, none, numbers, attributes
    )
    assert events.at(slice(2, 4)).attributes.tolist() == attributes[2:4].tolist()
    assert events.at(np.array([5, 0], np.int32)).attributes.tolist() == attributes[[5, 0]].tolist()
    copied = events.copy()
    attributes[0, 0] = -1
    assert copied.attributes[0, 0] == 0
    pieces = list(events.near_one_another())
    assert len(pieces) > 1
    assert np.concatenate([piece.attributes for piece in pieces]).tolist() == attributes.tolist()
