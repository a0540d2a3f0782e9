"""Matches in long partitions against Python's regular expressions, which prefer as row patterns do."""

import re

import numpy as np
import pytest

from cer_gpu.row_patterns import row_matching
from cer_gpu.row_patterns.pattern import parse_pattern
from cer_gpu.row_patterns.program import program_of
from cer_gpu.row_patterns.row_matching import TO_NEXT_ROW, Skip, find_matches

LETTERS = "ABCX"
"""Symbols, and the variables that only they satisfy; Y takes every row."""
PATTERNS = {
    "A B+ C": "AB+C",
    "A (B | B C)*? C": "A(?:B|BC)*?C",
    "B+": "B+",
    "A Y{2,300}? C": "A.{2,300}?C",
    "B{0,250} B{250} Y{0,700}? C": "B{0,250}B{250}.{0,700}?C",
    "(B? Y{3,90} A){2,} (C | Y{200,})": "(?:B?.{3,90}A){2,}(?:C|.{200,})",
}


@pytest.mark.parametrize("share", [0.001, 0.3], ids=["rare", "frequent"])
@pytest.mark.parametrize("room", [5, row_matching.MATCHES], ids=["small pieces", "one piece"])
def test_matches_in_long_partitions_are_those_of_regular_expressions(monkeypatch, share, room):
    monkeypatch.setattr(row_matching, "MATCHES", room)
    symbols = np.random.default_rng(3).choice(4, 6000, p=[share, share, share, 1 - 3 * share]).astype(np.uint16)
    symbols[100:700] = 1  # a long run of B
    ends = np.array([1, 2, 90, 900, 3000, 6000])
    held = {name: np.arange(4) == number for number, name in enumerate(LETTERS)} | {"Y": np.ones(4, np.bool_)}
    text = "".join(LETTERS[symbol] for symbol in symbols)
    for pattern, expression in PATTERNS.items():
        program = program_of(parse_pattern(pattern, (0, len(pattern))), may_count=True)
        matches = re.compile(expression)
        expected = [
            (match.start(), match.end() - match.start(), number)
            for begin, end in zip([0, *ends], ends, strict=False)
            for number, match in enumerate(matches.finditer(text, begin, end), 1)
        ]
        pieces = list(find_matches(program, held, symbols, ends, Skip()))
        found = [row for each in pieces for row in zip(each.starts, each.lengths, each.numbers, strict=True)]
        assert found == expected, pattern
        taken = [program.places[place].variable for each in pieces for place in each.places]
        rows = [start + i for start, length, _ in expected for i in range(length)]
        assert len(taken) == len(rows)
        assert all(held[name][symbols[row]] for name, row in zip(taken, rows, strict=True))
        overlapping = list(find_matches(program, held, symbols, ends, Skip(TO_NEXT_ROW)))
        every = [int(start) for each in overlapping for start in each.starts]
        stops = np.repeat(ends, np.diff([0, *ends]))
        assert every == [i for i, stop in enumerate(stops) if matches.match(text, i, stop)], pattern
