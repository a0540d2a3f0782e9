"""Generator of CUDA C++ source from programs of guards (`kernels/select.cuh` has the loop over the rows of a block).

The generated function makes the bit vector of one row (`cer_gpu.expressions.targets.cuda`).
"""

from __future__ import annotations

from collections.abc import Iterable

from cer_gpu.backend.device import MAX_BY_VALUE
from cer_gpu.backend.kernel_source import read_kernel_source
from cer_gpu.expressions.targets.cuda import TYPES, CudaWriter, Places, places
from cer_gpu.expressions.terms import IN_ORDER, GuardProgram, Sides
from cer_gpu.predicates.numba_source import slots_of


def places_of(program: GuardProgram | Sides) -> Places:
    """Assign a place to each input of a program, or of sides of filters."""
    if isinstance(program, Sides):
        return places(program.columns, [value for _, value in program.values], (), ())
    slots = slots_of(program)
    return places(slots.columns, [test for _, test in program.tests], [*program.codes, *slots.tables], slots.given)


def struct_of(program: GuardProgram) -> str:
    """Return the generated struct ``cer_query`` of a program's kernels."""
    return "\n".join(_GuardWriter(program).struct()) + "\n"


def words_source_of(program: GuardProgram) -> str:
    """Return the source of the kernel ``cer_query_words`` of a program, which `kernels/select.cuh` documents."""
    words = read_kernel_source("query_words.cuh", without=["select.cuh", "common.cuh"])
    return read_kernel_source("select.cuh") + _number_of_inputs(program) + struct_of(program) + words


def select_source_of(program: GuardProgram) -> str:
    """Return the source of a program's kernels ``cer_query_words`` and ``cer_query_select``."""
    return words_source_of(program) + read_kernel_source("query_select.cuh", without=["select.cuh", "inputs.cuh"])


def sides_source_of(sides: Sides) -> str:
    """Return the source of the kernel ``cer_query_sides``, which `kernels/sides.cuh` documents."""
    struct = "\n".join(_SideWriter(sides).struct()) + "\n"
    kernel = read_kernel_source("query_sides.cuh", without=["sides.cuh", "common.cuh"])
    return read_kernel_source("sides.cuh") + _number_of_inputs(sides) + struct + kernel


def _number_of_inputs(of: GuardProgram | Sides) -> str:
    """Return what `kernels/inputs.cuh` needs to know."""
    n = places_of(of).size
    return f"#define CER_N_INPUTS {max(n, 1)}\n" if n <= MAX_BY_VALUE else ""


class _SideWriter(CudaWriter):
    """Writer of the struct of sides of filters."""

    def __init__(self, sides: Sides) -> None:
        super().__init__(places_of(sides))
        self._sides = sides

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        for k, (kind, value) in enumerate(self._sides.values):
            name, known = self._value_name(value), self._all_not_null(value)
            if kind == IN_ORDER:
                known.append(f"cer_has_order({name})")
            self._lines.append(f"side[{k}] = {'cer_order' if kind == IN_ORDER else 'cer_bits'}({name});")
            self._lines.append(f"valid |= static_cast<cer_u64>({' && '.join(known) or 'true'}) << {k};")
        return [
            "struct cer_sides {",
            f"  enum {{ n_sides = {len(self._sides.values)} }};",
            "  CER_DEVICE static cer_u64 of_row(const cer_u64* __restrict__ in, cer_i64 row, cer_i64* side) {",
            "    (void)in, (void)row;",
            "    cer_u64 valid = 0;",
            *(f"    {line}" for line in self._lines),
            "    return valid;",
            "  }",
            "};",
        ]


class _GuardWriter(CudaWriter):
    """Writer of the struct of guards."""

    def __init__(self, program: GuardProgram) -> None:
        super().__init__(places_of(program))
        self._program = program

    def struct(self) -> list[str]:
        """Return the lines of the struct."""
        program = self._program
        results = {guard: self._truth_name(test) for guard, test in program.tests}
        for k in range(program.n_parts):
            guards = range(64 * k, min(64 * k + 64, program.n_guards))
            untested = sum(1 << guard % 64 for guard in guards if guard not in results)
            bits = [f"word({untested}ULL)"]
            bits += [f"word({results[guard]}) << {guard % 64}" for guard in guards if guard in results]
            factors = [f"({' | '.join(f'({bit})' for bit in bits)})", *self._allowed_by_codes(k)]
            self._lines.append(f"w[{k}] = static_cast<word>({' & '.join(factors)});")
        return [
            "struct cer_query {",
            f"  typedef {TYPES[program.word]} word;",
            f"  enum {{ n_parts = {program.n_parts} }};",
            "  CER_DEVICE static void words(const cer_u64* __restrict__ in, cer_i64 row, word* w) {",
            "    (void)in, (void)row;",
            *(f"    {line}" for line in self._lines),
            "  }",
            "};",
        ]

    def _allowed_by_codes(self, part: int) -> Iterable[str]:
        """Yield the words that the tables of types and streams allow for the row."""
        for name, column in self._program.codes.items():
            index = f"{self._entry(column, name)} * {self._program.n_parts} + {part}"
            yield f"cer_load<word>(in[{self._places.tables[name]}], {index})"
