"""Every record of the operators has every spelling, and every target agrees with Python's exact numbers."""

from __future__ import annotations

import ctypes
import math
import operator
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from host_device import Build, has_compiler

from cer_gpu.backend import jit
from cer_gpu.backend.joins.filters import HIGH, IS_VALID, VALUE, StringTables, filters_of, run_events
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.columnar.columns import Block
from cer_gpu.errors import EventsError
from cer_gpu.expressions import terms as t
from cer_gpu.expressions.inputs import Inputs, halves_of
from cer_gpu.expressions.operators import FUNCTIONS, MIXED, OPERATORS
from cer_gpu.expressions.relation_terms import Argument
from cer_gpu.expressions.side_columns import SideColumns, StringIds
from cer_gpu.expressions.string_functions import StringFunction
from cer_gpu.expressions.targets import arrow, numba
from cer_gpu.expressions.targets.cuda import CudaWriter, places
from cer_gpu.expressions.targets.numpy import rows_of, values_of
from cer_gpu.expressions.targets.program import ProgramWriter

LOW, HIGHEST = -(2**63), 2**63 - 1
ANY = object()
"""In place of a result that is never asked for."""
INTEGERS = [LOW, LOW + 1, -(2**53) - 1, -7, -2, -1, 0, 1, 2, 7, 2**32, 2**53 + 1, HIGHEST - 1, HIGHEST, None]
NATURALS = [0, 1, 2, 7, 2**32 - 1, 2**53 + 1, HIGHEST, 2**63, 2**63 + 1025, 2**64 - 1, None]
FLOATS = [-math.inf, -1.7e308, -(2.0**63), -7.5, -1.0, -5e-324, -0.0, 0.0, 0.1, 1.0, 7.0, 2.0**53, 2.0**63, 2.0**64]
FLOATS += [1.8446744073709550e19, 1.7e308, math.inf, math.nan, None]
VALUES = {t.I8: INTEGERS, t.U8: NATURALS, t.F8: FLOATS}
TYPES = {t.I8: pa.int64(), t.U8: pa.uint64(), t.F8: pa.float64()}
FACTOR = 10**9


# ---- exact meanings --------------------------------------------------------------------------------------------------


def fitting(meaning, of=range(LOW, HIGHEST + 1)):
    """Return an operator that gives `ANY` where the exact integer is not among some: it has no such operands."""

    def applied(*operands):
        found = meaning(*operands)
        return found if found is None or found in of else ANY

    return applied


def quotient(x: int, y: int) -> int | None:
    return None if y == 0 else int(Fraction(x, y))  # truncated toward zero


def remainder(x: int, y: int) -> int | None:
    return None if y == 0 else x - y * int(Fraction(x, y))


def divided(x: float, y: float) -> float:
    if y != 0:
        return x / y
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)


def float_remainder(x: float, y: float) -> float:
    return math.nan if y == 0 or math.isinf(x) or x != x or y != y else math.fmod(x, y)


def float_product(x: float, y: float) -> float:
    return x * y


INTEGER_MEANING = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": quotient,
    "%": remainder,
    "negative": operator.neg,
    "abs": abs,
}
WIDE = range(-(2**127), 2**127)
FLOAT_MEANING = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divided,
    "%": float_remainder,
    "negative": operator.neg,
    "abs": abs,
}
MEANING = {
    **{(symbol, t.I8): fitting(meaning) for symbol, meaning in INTEGER_MEANING.items()},
    **{(symbol, t.WIDE): fitting(meaning, WIDE) for symbol, meaning in INTEGER_MEANING.items()},
    **{(symbol, t.F8): meaning for symbol, meaning in FLOAT_MEANING.items()},
}
COMPARED = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# ---- all operators on all pairs of values ----------------------------------------------------------------------------


class Column:
    """Two columns of one batch: all pairs of values of two types."""

    def __init__(self, left: str, right: str) -> None:
        pairs = list(product(VALUES[left], VALUES[right]))
        self.xs, self.ys = [x for x, _ in pairs], [y for _, y in pairs]
        self.batch = pa.record_batch({"x": pa.array(self.xs, TYPES[left]), "y": pa.array(self.ys, TYPES[right])})
        self.block = Block(self.batch)
        self.inputs = Inputs(self.batch.schema)
        self.x, self.y = self.inputs.column("x"), self.inputs.column("y")


def known(*values: object) -> bool:
    return None not in values


def cases() -> list[tuple[str, str, str, str]]:
    """Return each operator with the types of its terms, and of the columns that they are made of."""
    found = []
    for record in [*OPERATORS.values(), *(each for each in FUNCTIONS.values() if each.of)]:
        for of in record.of:
            stored = {t.WIDE: [(t.I8, t.U8), (t.U8, t.I8), (t.I8, t.I8)], MIXED: [(t.F8, t.I8), (t.F8, t.U8)]}
            found += [(record.symbol, of, *pair) for pair in stored.get(of, [(of, of)])]
    return found


CASES = cases()


def operands(columns: Column, symbol: str, of: str) -> tuple[t.Value, ...]:
    if of == t.WIDE:
        wide = t.ToWide(columns.x, FACTOR), t.ToWide(columns.y)
        return wide[: 1 if symbol in ("negative", "abs") else 2]
    if of == MIXED:
        return columns.x, t.ToWide(columns.y)
    return (columns.x, columns.y)[: 1 if symbol in ("negative", "abs") else 2]


def expected(columns: Column, symbol: str, of: str) -> list[object]:
    """Return the exact results; of comparisons, TRUE, FALSE, or None for unknown."""
    xs = [x if x is None or of != t.WIDE else x * FACTOR for x in columns.xs]
    one = symbol in ("negative", "abs")
    meaning = COMPARED.get(symbol) or MEANING[symbol, of]
    rows = [(x,) for x in xs] if one else list(zip(xs, columns.ys, strict=True))
    return [meaning(*row) if known(*row) else None for row in rows]


def same(found: list[object], exact: list[object]) -> bool:
    """Return True if results are equal, NaN to NaN, and zeros with their signs."""
    return [repr(x) for x, y in zip(found, exact, strict=True) if y is not ANY] == [
        repr(y) for y in exact if y is not ANY
    ]


# ---- the table -------------------------------------------------------------------------------------------------------


def test_the_meanings_are_those_of_the_table():
    of_numbers = {(symbol, of) for symbol, of, *_ in CASES if symbol not in COMPARED}
    assert of_numbers == set(MEANING)
    assert set(OPERATORS) == {*COMPARED, *INTEGER_MEANING} - {"abs"}


def test_every_record_says_what_it_does_and_has_every_spelling():
    for record in OPERATORS.values():
        assert record.null
        assert record.overflow
        assert record.of
    for record in [*OPERATORS.values(), *FUNCTIONS.values()]:
        for of, spelled in record.of.items():
            assert callable(spelled.numpy)
            assert "{x}" in spelled.numba
            assert "{x}" in spelled.cuda
            in_arrow = of in (t.I8, t.F8, t.U8) and record.symbol in OPERATORS
            assert callable(spelled.arrow) == in_arrow, (record.symbol, of)
            assert spelled.program is not None
    for function in FUNCTIONS.values():
        if isinstance(function, StringFunction):
            assert function.example or function.symbol.endswith("~")
            assert 1 <= function.least <= len(function.operands)
            assert callable(function.compute)
            continue
        assert function.expected
        assert any(function.takes(each) for each in (pa.int64(), pa.string(), pa.timestamp("ms")))
        assert callable(function.arrow)


# ---- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("symbol", "of", "left", "right"), CASES)
def test_numpy_is_exact(symbol, of, left, right):
    columns = Column(left, right)
    exact = expected(columns, symbol, of)
    if symbol in COMPARED:
        for negated in (False, True):
            test = t.Compare(symbol, *operands(columns, symbol, of), negated)
            rows = np.broadcast_to(rows_of(test, columns.inputs, columns.block), len(exact))
            assert rows.tolist() == [x is not None and x != negated for x in exact]
        return
    values, valid = values_of(t.Apply(symbol, operands(columns, symbol, of)), columns.inputs, columns.block)
    valid = np.ones(len(exact), np.bool_) if valid is None else valid
    found = [x if is_valid else None for x, is_valid in zip(values.tolist(), valid.tolist(), strict=True)]
    assert same(found, exact)


@pytest.mark.parametrize(("symbol", "of", "left", "right"), CASES)
def test_programs_are_exact(symbol, of, left, right):
    """The events of x are instances of atom 0, those of y of atom 1."""
    columns = Column(left, right)
    exact, events = expected(columns, symbol, of), (Argument("x", "EACH"), Argument("y", "EACH"))
    arranged = {columns.x: t.OfEvent(events[0], columns.x), columns.y: t.OfEvent(events[1], columns.y)}

    def placed(term):
        if isinstance(term, t.ToWide):
            return t.ToWide(placed(term.operand), term.factor)
        return arranged[term]

    of_events = tuple(map(placed, operands(columns, symbol, of)))
    for negated in (False, True):
        read: dict[object, int] = {}
        writer = ProgramWriter(
            events,
            lambda c, read=read: read.setdefault(c, len(read)),
            lambda value: value,
            columns.inputs,
            columns.inputs,
        )
        if symbol in COMPARED:
            program = writer.program(t.Compare(symbol, *of_events, negated))
        elif not negated:
            writer._push_value(t.Apply(symbol, of_events))
            program = writer.program(t.And(()))
        else:
            continue
        stored = stored_values(columns, list(read))
        texts = StringTables(np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.uint8))
        filters = filters_of(np.zeros((1, 9), np.int32), list(program.instructions), (), texts)
        work = filters.work
        found: list[object] = []
        for row in range(len(exact)):
            both = np.arange(2), np.full(2, row)
            holds = run_events(tuple(filters), stored, 0, len(program.instructions), *both)
            if symbol in COMPARED:
                found.append(bool(holds))
            elif work[0, IS_VALID] == 0:
                found.append(None)
            elif of == t.WIDE:
                found.append((int(work[0, HIGH]) << 64) + (int(work[0, VALUE]) & (2**64 - 1)))
            else:
                found.append((work.view(np.float64) if of == t.F8 else work)[0, VALUE].item())
        assert same(found, [x is not None and x != negated for x in exact] if symbol in COMPARED else exact)


def stored_values(columns, read):
    """Return the columns of a program for both atoms, with the bits of the valid ones before them."""
    rows = np.arange(columns.batch.num_rows, dtype=np.int32)
    of_rows = SideColumns(read, columns.inputs, StringIds()).of(columns.block, rows)
    return np.ascontiguousarray(np.stack([of_rows.T, of_rows.T]))


@pytest.mark.parametrize("dtype", [t.I8, t.F8])
@pytest.mark.parametrize("symbol", [symbol for symbol in OPERATORS if symbol not in COMPARED])
def test_arrow_is_exact_or_refuses_what_does_not_fit(symbol, dtype):
    columns = Column(dtype, dtype)
    arrays = [columns.batch.column(name) for name in "xy"][: OPERATORS[symbol].n_operands]
    exact = expected(columns, symbol, dtype)
    for row, value in enumerate(exact):
        one = [array.slice(row, 1) for array in arrays]
        operation = arrow.negative if symbol == "negative" else lambda *x: arrow.operation(symbol, *x)
        if value is ANY:
            with pytest.raises(EventsError, match="does not fit"):
                operation(*one)
        else:
            assert same(operation(*one).to_pylist(), [value])


# ---- compiled code: all operators in one function --------------------------------------------------------------------


def written(writer, columns: Column, symbol: str, of: str, negated: bool) -> tuple[str, str, str]:
    """Return the names of the value (or truth), of its upper half, and of a truth that it is not NULL."""
    if symbol in COMPARED:
        name = writer._truth_name(t.Compare(symbol, *operands(columns, symbol, of), negated))
        return name, "0", writer._truth(True)
    term = t.Apply(symbol, operands(columns, symbol, of))
    return writer._value_name(term), "", writer._join_truths(writer._all_not_null(term) or [writer._truth(True)], True)


@pytest.mark.parametrize(("left", "right"), sorted({case[2:] for case in CASES}))
def test_numba_is_exact(left, right):
    columns = Column(left, right)
    mine = [(s, of, negated) for s, of, *pair in CASES if (left, right) == tuple(pair) for negated in (False, True)]
    writer, lines = numba.NumbaWriter(nullable=True), []
    for k, (symbol, of, negated) in enumerate(mine):
        name, high, is_known = written(writer, columns, symbol, of, negated)
        if symbol not in COMPARED and of == t.F8:
            writer._lines.append(f"floats[{k}, i] = {name}")
        else:
            low = f"{name}[1]" if of == t.WIDE and symbol not in COMPARED else name
            writer._lines.append(f"found[{k}, i] = I({low})")
            writer._lines.append(f"highs[{k}, i] = {high or (f'{name}[0]' if of == t.WIDE else '0')}")
        writer._lines.append(f"knowns[{k}, i] = {is_known}")
    lines = ["b0 = b1 = p0 = p1 = U(0)", "for r in range(n):", "    i = U(r)", *(f"    {x}" for x in writer._lines)]
    source = numba.HEADER + "def run(n, c0, c1, v0, v1, found, floats, highs, knowns):\n    " + "\n    ".join(lines)
    namespace: dict[str, object] = {}
    exec(source, namespace)
    n = columns.batch.num_rows
    found, highs, knowns = (np.zeros((len(mine), n), np.int64) for _ in range(3))
    stored = [columns.inputs.stored(column, columns.block) for column in (columns.x, columns.y)]
    arrays = [each.values for each in stored] + [each.valid for each in stored]
    jit.kernel(namespace["run"], keep=False)(n, *arrays, found, found.view(np.float64), highs, knowns)
    check_compiled(columns, mine, found, highs, knowns)


def check_compiled(columns, mine, found, highs, knowns):
    for k, (symbol, of, negated) in enumerate(mine):
        exact = expected(columns, symbol, of)
        if symbol in COMPARED:
            assert found[k].tolist() == [x is not None and x != negated for x in exact], (symbol, of, negated)
            continue
        values = found[k].view(np.float64).tolist() if of == t.F8 else found[k].tolist()
        if of == t.WIDE:
            values = [(high << 64) + (low & (2**64 - 1)) for high, low in zip(highs[k].tolist(), values, strict=True)]
        values = [x if is_known else None for x, is_known in zip(values, knowns[k].tolist(), strict=True)]
        assert same(values, exact), (symbol, of)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    if not has_compiler():
        pytest.skip("g++ is not installed: it builds the device functions for the host")
    return Build(tmp_path_factory.mktemp("operators"), "-fsanitize=undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize(("left", "right"), sorted({case[2:] for case in CASES}))
def test_cuda_is_exact_on_the_host(build, left, right):
    columns = Column(left, right)
    mine = [(s, of, negated) for s, of, *pair in CASES if (left, right) == tuple(pair) for negated in (False, True)]
    assigned = places([columns.x, columns.y], [], (), ())
    writer = CudaWriter(assigned)
    for k, (symbol, of, negated) in enumerate(mine):
        name, _, is_known = written(writer, columns, symbol, of, negated)
        if symbol in COMPARED:
            writer._lines.append(f"found[{k} * n + row] = {name};")
        elif of == t.WIDE:
            writer._lines.append(f"found[{k} * n + row] = (cer_i64){name}.low, highs[{k} * n + row] = {name}.high;")
        else:
            writer._lines.append(f"found[{k} * n + row] = cer_bits({name});")
        writer._lines.append(f"knowns[{k} * n + row] = {is_known};")
    source = (
        read_kernel_source("sides.cuh")
        + 'extern "C" void run(const cer_u64* in, cer_i64 n, cer_i64* found, cer_i64* highs, cer_i64* knowns) {\n'
        + "(void)highs; for (cer_i64 row = 0; row < n; ++row) {\n"
        + "\n".join(writer._lines)
        + "}}\n"
    )
    n = columns.batch.num_rows
    found, highs, knowns = (np.zeros((len(mine), n), np.int64) for _ in range(3))
    numbers = np.zeros(assigned.size, np.uint64)
    stored = [columns.inputs.stored(column, columns.block) for column in (columns.x, columns.y)]
    for column, each in zip((columns.x, columns.y), stored, strict=True):
        place = assigned.columns[column.slot]
        numbers[place], numbers[place + 2] = each.values.ctypes.data, each.valid.ctypes.data
    build(source).run(
        ctypes.c_void_p(numbers.ctypes.data),
        ctypes.c_longlong(n),
        *(ctypes.c_void_p(array.ctypes.data) for array in (found, highs, knowns)),
    )
    check_compiled(columns, mine, found, highs, knowns)


def test_halves_of_wide_integers():
    for value in (0, 1, -1, 2**63, 2**64 - 1, -(2**64), 2**120, -(2**120), 10**36):
        high, low = halves_of(value)
        assert (high << 64) + (low & (2**64 - 1)) == value
        assert LOW <= high <= HIGHEST
        assert LOW <= low <= HIGHEST


def test_the_negative_of_a_uint64_in_measures_fits_or_is_an_error():
    assert arrow.negative(pa.array([7, None], pa.uint64())).to_pylist() == [-7, None]
    with pytest.raises(EventsError, match="does not fit its type"):
        arrow.negative(pa.array([2**63], pa.uint64()))
