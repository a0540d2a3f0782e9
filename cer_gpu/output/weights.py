"""Weights: what each event adds to an expression over matches that is a sum over their events.

The expression of an aggregate such as ``SUM(c.amount - a.amount)`` is a sum of terms, each a number times an attribute
of the one event at a step of a chain.  The events of each such step have a weight, and no match need be listed
(`cer_gpu.backend.chains.weighing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cer_gpu.arrays import Int32, Int64
from cer_gpu.automaton.chain import ChainStep, Rejection
from cer_gpu.automaton.chain_sums import Weighing
from cer_gpu.automaton.normal_form import variable_name
from cer_gpu.backend.chains.weighing import FINITE, INFINITE, NEGATIVE, NOT_A_NUMBER
from cer_gpu.ceql import syntax as s
from cer_gpu.ceql.traversal import children, fold
from cer_gpu.columnar.columns import as_type, plain_type, take_rows
from cer_gpu.columnar.fields import array_of, attribute_type
from cer_gpu.errors import EventsError
from cer_gpu.output.reductions import Aggregation
from cer_gpu.runtime.counts import WeighedBuffers

Number = int | float

MAX_WEIGHT = 1 << 62
"""Upper bound of the sum of the weights of a match, if they are integers."""
MAX_SUMMED = 2.0**94
"""Greatest sum of magnitudes for which the float sum identifies the exact integer after overflow."""


@dataclass(frozen=True)
class Linear:
    """A sum of terms, and a constant.

    Attributes
    ----------
    terms : dict of (int, str) to (number, number)
        For a step and an attribute, its factor, and the sum of the magnitudes of the factors that it is made of.
    constant : (number, number)
        Likewise.
    """

    terms: dict[tuple[int, str], tuple[Number, Number]] = field(default_factory=dict)
    constant: tuple[Number, Number] = (0, 0)

    def times(self, factor: Number, amount: Number) -> Linear:
        """Return the sum multiplied by a number."""
        terms = {key: (a * factor, b * amount) for key, (a, b) in self.terms.items()}
        return Linear(terms, (self.constant[0] * factor, self.constant[1] * amount))

    def plus(self, other: Linear) -> Linear:
        """Return the sum of both."""
        terms = dict(self.terms)
        for key, (a, b) in other.terms.items():
            before = terms.get(key, (0, 0))
            terms[key] = before[0] + a, before[1] + b
        return Linear(terms, (self.constant[0] + other.constant[0], self.constant[1] + other.constant[1]))

    @property
    def numbers(self) -> list[Number]:
        """Numbers of the terms and the constant."""
        return [number for pair in (*self.terms.values(), self.constant) for number in pair]


def linear(expression: s.Expression, steps: Sequence[ChainStep]) -> Linear | Rejection:
    """Return an expression as a sum of terms over the steps of a chain, or the reason why it is not one."""
    if any(step.labels is None for step in steps):
        return Rejection("the variables of a step depend on the event")

    def value(node: s.Expression, below: list[Linear | Rejection]) -> Linear | Rejection:
        for each in below:
            if isinstance(each, Rejection):
                return each
        parts = [each for each in below if isinstance(each, Linear)]
        match node:
            case s.Literal() if isinstance(node.value, int | float) and not isinstance(node.value, bool):
                if isinstance(node.value, int) and abs(node.value) >= MAX_WEIGHT:
                    return Rejection(f"the number {node.value} is large")
                return Linear({}, (node.value, abs(node.value)))
            case s.Attribute() if node.variable is not None and not node.lag:
                name = variable_name(node.variable)
                at = [k for k, step in enumerate(steps) if name in (step.labels or ())]
                if len(at) != 1 or steps[at[0]].repeated:
                    return Rejection(f"{name} may hold several events")
                return Linear({(at[0], node.name): (1, 1)})
            case s.Negative():
                return parts[0].times(-1, 1)
            case s.Arithmetic(op="+"):
                return parts[0].plus(parts[1])
            case s.Arithmetic(op="-"):
                return parts[0].plus(parts[1].times(-1, 1))
            case s.Arithmetic(op="*") if not parts[0].terms:
                return parts[1].times(*parts[0].constant)
            case s.Arithmetic(op="*") if not parts[1].terms:
                return parts[0].times(*parts[1].constant)
        return Rejection("its expression is no sum of numbers times attributes")

    result: Linear | Rejection = fold(
        expression, value, lambda node: () if isinstance(node, s.Aggregate) else children(node)
    )
    if isinstance(result, Rejection):
        return result
    if not result.terms:
        return Rejection("its expression has no attribute")
    if not all(map(math.isfinite, result.numbers)):
        return Rejection("its expression has a number that is not finite")
    return result


@dataclass(frozen=True)
class BoundWeights:
    """Weights bound to one schema, by `bind_weights`.

    Attributes
    ----------
    weighing : Weighing
    """

    weighing: Weighing
    _terms: tuple[tuple[tuple[pa.Field, Number, Number], ...], ...]
    _constant: tuple[Number, Number]
    _of_integers: bool
    _sign: int

    def of(self, batch: pa.RecordBatch, rows: Int32) -> Int64:
        """Return the weights of some rows of a batch.

        Returns
        -------
        int64 array, shape (n rows, 3 * n steps)
            The kind of each weight, its bits as a float64, and its value as an int64.

        Raises
        ------
        EventsError
            When an integer is too large.
        """
        n_steps = len(self._terms)
        weights = np.zeros((len(rows), 3 * n_steps), np.int64)
        chosen = pa.array(rows)
        for k, terms in enumerate(self._terms):
            constant, amount = self._constant if k == 0 else (0, 0)
            valid = np.ones(len(rows), np.bool_)
            total = np.full(len(rows), self._sign * constant, np.int64 if self._of_integers else np.float64)
            for named, factor, magnitude in terms:
                values = as_type(take_rows(array_of(batch, named.name), chosen), named.type, f"column {named.name!r}")
                if values.null_count:
                    valid &= np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
                    values = values.fill_null(0)
                numbers = values.to_numpy(zero_copy_only=False)
                if self._of_integers:
                    if len(numbers):
                        amount += int(magnitude) * max(int(numbers.max()), -int(numbers.min()))
                    self._check_bounds(int(amount), named.name)
                    total += numbers.astype(np.int64) * np.int64(self._sign * factor)
                else:
                    floats = numbers.astype(np.float64)
                    with np.errstate(all="ignore"):
                        total += floats * (self._sign * factor)
                    if abs(factor) != magnitude:  # infinity minus infinity
                        total[np.isinf(floats)] = np.nan
            floats = total.astype(np.float64)
            kinds = np.where(valid, FINITE, 0)
            if self.weighing.least and not self._of_integers:
                kind = np.full(len(rows), FINITE)
                kind[np.isposinf(floats)], kind[np.isneginf(floats)] = INFINITE, NEGATIVE
                kind[np.isnan(floats)] = NOT_A_NUMBER
                kinds = np.where(valid, kind, 0)
                floats = np.where(kind == FINITE, floats, 0.0)
            weights[:, k] = kinds
            weights[:, n_steps + k] = floats.view(np.int64)
            if self.weighing.whole:
                weights[:, 2 * n_steps + k] = total
        return weights

    def _check_bounds(self, amount: int, name: str) -> None:
        if amount > MAX_WEIGHT // len(self._terms):
            raise EventsError(
                f"the values of column {name!r} are too large for an aggregate that lists nothing\n"
                "hint: cast the column to float64"
            )


def bind_weights(expression: Linear, aggregate: Aggregation, schema: pa.Schema) -> BoundWeights | None:
    """Bind the terms of an aggregate to a schema, or return None if their types require listing the matches."""
    fields, least = {}, aggregate.function in ("MIN", "MAX")
    for _, name in expression.terms:
        data_type = attribute_type(schema, name)
        if data_type is None:
            return None
        fields[name] = pa.field(name, plain_type(data_type))
    types = [each.type for each in fields.values()]
    whole_numbers = all(isinstance(number, int) for number in expression.numbers)
    of_integers = all(map(pa.types.is_integer, types))
    if of_integers:
        if not whole_numbers or any(each == pa.uint64() for each in types):
            return None
        if expression.constant[1] + sum(pair[1] for pair in expression.terms.values()) >= MAX_WEIGHT:
            return None
    elif not all(each in (pa.float32(), pa.float64()) for each in types):
        return None
    steps = tuple(sorted({step for step, _ in expression.terms}))
    terms = tuple(
        tuple((fields[name], *pair) for (at, name), pair in expression.terms.items() if at == step) for step in steps
    )
    weighing = Weighing(steps, least, of_integers and aggregate.function != "AVG")
    return BoundWeights(weighing, terms, expression.constant, of_integers, -1 if aggregate.function == "MAX" else 1)


def weighed_values(buffers: WeighedBuffers, function: str, data_type: pa.DataType) -> pa.Array:
    """Return the values of an aggregate, given the weighted runs.

    Raises
    ------
    EventsError
        When a sum does not fit its type.
    """
    nothing = buffers.weighed == 0
    sign = -1 if function == "MAX" else 1
    if buffers.whole:
        unsigned = pa.types.is_unsigned_integer(data_type) and function == "SUM"
        integers = buffers.integers if unsigned else buffers.integers.view(np.int64)
        if function == "SUM":
            off = ~(np.abs(buffers.floats - integers.astype(np.float64)) < 2.0**63)
            off |= buffers.counts.astype(np.float64) * buffers.greatest > MAX_SUMMED
            off &= ~nothing
            if off.any():
                end = int(buffers.ends[np.argmax(off)])
                raise EventsError(
                    f"the sum over the matches that end at {end} is beyond {data_type}\nhint: AVG is a float64"
                )
        else:
            integers = np.where(nothing, 0, sign * integers)
        return pa.array(integers, mask=nothing).cast(data_type)
    floats = buffers.floats
    if function in ("MIN", "MAX"):
        kinds = buffers.weighed
        finite = np.where(kinds & FINITE, floats, np.where(kinds & INFINITE, np.inf, np.nan))
        floats = sign * np.where(kinds & NEGATIVE, -np.inf, finite)
    elif function == "AVG":
        with np.errstate(all="ignore"):
            floats = floats / buffers.weighed
    return pa.array(floats, mask=nothing).cast(data_type)
