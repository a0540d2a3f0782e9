"""Random programs of typed terms, made without a query: all kinds of terms, columns and widths of words."""

from __future__ import annotations

import random

from cer_gpu.expressions import terms as t

_KINDS = [t.I8, t.U8, t.F8]
_STORED = {t.I8: ["i1", "i2", "i4", t.I8, "u1", "u2", "u4", t.BIT], t.U8: [t.U8], t.F8: ["f4", t.F8]}
_N_COLUMNS, _N_CONSTANTS, _N_TABLES, _N_GIVEN = 20, 4, 3, 2


def random_program(rng: random.Random) -> t.GuardProgram:
    """Return a program of 1 to 150 guards."""
    maker = _Maker(rng)
    n_guards = rng.choice([rng.randint(1, 8), rng.randint(9, 16), rng.randint(17, 64), rng.randint(65, 150)])
    tested = sorted(rng.sample(range(n_guards), rng.randint(0, min(n_guards, 12))))
    tests = tuple((guard, maker.test(3)) for guard in tested)
    types, streams = (maker.codes(slot) if rng.random() < 0.7 else None for slot in (0, 1))
    return t.GuardProgram(n_guards, types, streams, tests)


def random_sides(rng: random.Random) -> t.Sides:
    """Return 1 to 5 sides of filters."""
    maker = _Maker(rng)
    kinds = [(rng.choice([t.RAW, t.IN_ORDER]), rng.choice(_KINDS)) for _ in range(rng.randint(1, 5))]
    return t.Sides(tuple((kind, maker.value(dtype, 3)) for kind, dtype in kinds))


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._columns: dict[int, t.Column] = {}

    def codes(self, slot: int) -> t.Column:
        return self._columns.setdefault(slot, t.Column(slot, self._rng.choice(["i1", "i4", "u2", t.U8])))

    def column(self, dtype: str) -> t.Column:
        rng = self._rng
        slot = 2 + _KINDS.index(dtype) + 3 * rng.randrange(_N_COLUMNS // 3)
        stored = rng.choice(_STORED[dtype])
        stride = rng.choice([1, 1, 2, 4]) if stored == t.I8 else 1
        return self._columns.setdefault(slot, t.Column(slot, stored, stride))

    def value(self, dtype: str, depth: int) -> t.Value:
        rng, drawn = self._rng, self._rng.random()
        if dtype == t.WIDE:
            if depth and drawn < 0.3:
                return t.Apply(rng.choice("+-"), (self.value(t.WIDE, depth - 1), self.value(t.WIDE, depth - 1)))
            if drawn < 0.4:
                return t.Constant(rng.randrange(_N_CONSTANTS), t.WIDE)
            return t.ToWide(self.value(rng.choice([t.I8, t.U8]), 1), 10 ** rng.randrange(19))
        if not depth or drawn < 0.4 or dtype == t.U8:
            return self.column(dtype) if rng.random() < 0.7 else t.Constant(rng.randrange(_N_CONSTANTS), dtype)
        if drawn < 0.5:
            return t.Apply("negative", (self.value(dtype, depth - 1),))
        if drawn < 0.65 and dtype == t.F8:
            return t.ToFloat(self.value(rng.choice([t.I8, t.U8, t.WIDE]), depth - 1))
        return t.Apply(rng.choice("+-*/%"), (self.value(dtype, depth - 1), self.value(dtype, depth - 1)))

    def test(self, depth: int) -> t.BoundPredicate:
        rng, drawn = self._rng, self._rng.random()
        if depth and drawn < 0.35:
            tests = tuple(self.test(depth - 1) for _ in range(rng.randint(1, 3)))
            return rng.choice([t.And, t.Or])(tests)
        if drawn < 0.75:
            left, right = rng.choice([(t.I8, t.I8), (t.F8, t.F8), (t.U8, t.U8), (t.WIDE, t.WIDE), (t.F8, t.WIDE)])
            return t.Compare(
                rng.choice(t.COMPARISONS), self.value(left, 2), self.value(right, 2), negated=rng.random() < 0.3
            )
        return rng.choice(
            [
                t.IsNotNull(self.value(rng.choice(_KINDS), 2), rng.random() < 0.5),
                t.Lookup(self.codes(rng.randrange(2)), rng.randrange(_N_TABLES)),
                t.ExternalPredicate(rng.randrange(_N_GIVEN)),
                t.ConstantPredicate(rng.random() < 0.5),
            ]
        )
