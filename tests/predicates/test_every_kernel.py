"""Every kernel runs, on every device, with every operation that a generated kernel can have.

compute-sanitizer runs this file (`tests/gpu_check.py`).  A kernel or an operation that is new fails it until a function
of CASES launches it.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pytest
from random_predicates import SCHEMA, AsTheyAppear, answers, batch_of, guard_words, guards_of, tree

from cer_gpu.automaton.normal_form import Guard
from cer_gpu.backend.kernel_source import kernel_folder
from cer_gpu.columnar.columns import Block
from cer_gpu.expressions.binder import Binder
from cer_gpu.expressions.inputs import Inputs
from cer_gpu.expressions.operators import OPERATORS
from cer_gpu.expressions.side_columns import OrderKey, Raw, SideColumns, StringIds
from cer_gpu.expressions.targets import cuda as cuda_target
from cer_gpu.expressions.targets.numpy import rows_of
from cer_gpu.expressions.terms import COMPARISONS, STORED
from cer_gpu.predicates.cuda import selection as cuda_source
from cer_gpu.predicates.cuda.guard_sets import SetInputs
from cer_gpu.predicates.cuda.set_steps import SetSteps
from cer_gpu.predicates.guards import CUDA, INTERPRETED, sets_pass
from cer_gpu.predicates.placement import CPU
from cer_gpu.predicates.symbol_table import SymbolTable

pytestmark = pytest.mark.long("compiles every kernel for every architecture and width")

GENERATORS = (cuda_source, cuda_target)
"""Modules whose text constants hold what generated kernels can call, besides the operators."""


class Recording:
    """A device that notes the kernels launched, and their sources."""

    def __init__(self, device) -> None:
        self._device, self.name = device, device.name
        self.allocate, self.pinned = device.allocate, device.pinned
        self.launched: set[str] = set()
        self.sources: set[str] = set()

    def compile(self, source: str, names: Iterable[str]):
        made = self._device.compile(source, names)
        return {name: (name, source, kernel) for name, kernel in made.items()}

    def queue(self):
        queue = self._device.queue()
        launch = queue.launch

        def note(kernel, n_warps, *arguments):
            self.launched.add(kernel[0])
            self.sources.add(kernel[1])
            launch(kernel[2], n_warps, *arguments)

        queue.launch = note
        return queue


def entry_points() -> set[str]:
    """Return the names of all kernels."""
    texts = (file.read_text(encoding="utf-8") for file in kernel_folder().iterdir() if ".cu" in file.name)
    return {name for text in texts for name in re.findall(r"^CER_KERNEL (\w+)\(", text, re.MULTILINE)}


def operations() -> set[str]:
    """Return the names of types and device functions that generated kernels can use, and a load of each type."""
    found = {f"cer_load<{kind}>" for name, kind in cuda_target.TYPES.items() if name in STORED}
    spelled = [each.cuda for known in OPERATORS.values() for each in known.of.values()]
    found |= {name for text in spelled for name in re.findall(r"\bcer_\w+", text)}
    for module in GENERATORS:
        text = ast.parse(inspect.getsource(module))
        constants = (node.value for node in ast.walk(text) if isinstance(node, ast.Constant))
        code = (value for value in constants if isinstance(value, str) and "\n" not in value.strip())
        found |= {name for value in code for name in re.findall(r"\bcer_\w+", value)}
    return found - entry_points()


def used(sources: Iterable[str]) -> str:
    """Return what was generated: the structs of the sources."""
    return "\n".join(
        found for text in sources for found in re.findall(r"^struct .*?^};", text, re.DOTALL | re.MULTILINE)
    )


# ---- cases: each evaluates something on the device, and checks the answer --------------------------------------------


def check(guards: tuple[Guard, ...], stream: str | None = None) -> None:
    """The first words have no symbol: their rows are fetched and numbered."""
    rng = random.Random(0)
    batches = [batch_of(rng, n, nulls) for n, nulls in ((600, 0.0), (300, 0.3), (1, 0.3))]
    on_device = guard_words(guards, SCHEMA, "type", "", stream, device=CUDA)
    on_host = guard_words(guards, SCHEMA, "type", "", stream)
    assert answers(on_device, batches, CUDA) == answers(on_host, batches, INTERPRETED)


def every_column() -> None:
    """A comparison of each column of numbers, and all operators."""
    texts = [f"{field.name} > 1" for field in SCHEMA if field.name.startswith("number")]
    texts += [f"number3 {op} number2 {c} 7" for op in "+-*/%" for c in ("=", "<>", "<", "<=", ">", ">=")]
    texts += [f"NOT -number9 {op} number10 > 0.5" for op in "+-*/%"] + ["number7 * 2 > 1.5", "bool0 = TRUE"]
    check(tuple(Guard("A", tree(text), None) for text in texts))


def wide_integers() -> None:
    """Numbers of unlike types, scales and units."""
    schema = pa.schema({"n": pa.int64(), "u": pa.uint64(), "s": pa.timestamp("s"), "ns": pa.timestamp("ns")})
    rows = [(-1, 2**64 - 1, 2**62, -(2**62)), (7, 7, 10**9, 10**18), (None, 0, 0, 1), (2**63 - 1, 2**63, 0, None)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    texts = [f"{x} {op} {y}" for x, y in (("n", "u"), ("s", "ns"), ("s - ns", "1 DAY")) for op in COMPARISONS]
    guards = tuple(Guard(None, tree(text)) for text in texts)
    on_device, on_host = (guard_words(guards, schema, None, "", device=device) for device in (CUDA, CPU))
    assert answers(on_device, [batch], CUDA) == answers(on_host, [batch], INTERPRETED)


def sides() -> None:
    """Values of filters between events: integers as they are, and all numbers in their order."""
    inputs, block = Inputs(SCHEMA), Block(batch_of(random.Random(0), 600, 0.2))
    integers = [inputs.column(f"number{k}") for k in range(8)]
    columns = [*map(Raw, integers), *map(OrderKey, integers), *(OrderKey(inputs.column(f"number{k}")) for k in (9, 10))]
    columns += [Raw(inputs.column("number10"))]
    on_host, on_device = (SideColumns(columns, inputs, StringIds()) for _ in range(2))
    words = guard_words((Guard(None, tree("number2 > 0")),), SCHEMA, None, "", device=CUDA, sides=on_device)
    rows = words.select(block, SymbolTable(AsTheyAppear(), words.bound.dtype, 1))[1]
    expected, found = on_host.of(block, rows), on_device.of(block, rows)
    assert len(rows) > 10
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])
    for k in range(len(columns) - 1):  # but the last, whose NaN may be any
        valid = expected[:, 0] >> k & 1 == 1
        np.testing.assert_array_equal(found[valid, k + 1], expected[valid, k + 1])


def sets() -> None:
    """Guards of a set: numbers of every type, texts with grams of each width and without, and a dictionary."""
    rng = random.Random(0)
    texts = [f"text{k} GLOB {{'{glob}'}}" for k in (0, 3) for glob in ("*a*b*", "ab*", "*", "?", "[a-b]*zz", "it*s")]
    texts += [f"number{k} {op} 1" for k in range(12) for op in COMPARISONS] + ["bool0 = TRUE", "number0 IS NULL"]
    asked = [(k % 2, tree(f"{text} OR NOT {texts[k - 1]} AND {texts[k - 2]}")) for k, text in enumerate(texts)]
    steps, batch = SetSteps.of(asked, SCHEMA), batch_of(rng, 700, 0.3)
    types, sets, binder = np.array([k % 3 for k in range(700)], np.int32), sets_pass(steps), Binder(SCHEMA, "")
    found = sets.collect(sets.submit((SetInputs(700, Block(batch), types),), None))
    for number, ((of_type, tested), rows) in enumerate(zip(asked, found, strict=True)):
        expected = rows_of(binder.bind(tested), binder.inputs, Block(batch)) & (types == of_type)
        assert sets.apply_late_tests(number, rows, Block(batch)).tolist() == np.flatnonzero(expected).tolist()


CASES: list[Callable[[], None]] = [
    lambda: check(guards_of(random.Random(0), 8, True), "stream"),
    lambda: check(guards_of(random.Random(1), 14, True), "stream"),
    lambda: check(tuple(Guard("AB"[k % 2], tree(f"number3 > {k}")) for k in range(66))),
    every_column,
    wide_integers,
    sides,
    sets,
]


def test_every_kernel_runs_with_every_operation(device, use):
    recording = use(Recording(device))
    for case in CASES:
        case()
    assert recording.launched == entry_points()
    text = used(recording.sources)
    assert {name for name in operations() if not re.search(rf"\b{re.escape(name)}(?!\w)", text)} == set()


def test_the_lists_are_those_of_the_code():
    assert entry_points() >= {"cer_query_words", "cer_query_select", "cer_group_tiles", "cer_pack_tiles"}
    assert operations() >= {"cer_bit", "cer_is_valid", "cer_entry", "cer_neg", "cer_mod", "cer_load<cer_f32>", "cer_ge"}
