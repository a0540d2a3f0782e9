"""Streams of logs that give their bytes in pieces of any size, and what readers say of them."""

from collections.abc import Callable
from itertools import cycle

from hypothesis import strategies as st

from cer_gpu.io.logs.records import Skipped


class CutStream:
    """A stream of which each read gives a piece of a given size, or what is left; never nothing before the end."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self.content, self.sizes = content, cycle(sizes)

    def read(self, most: int) -> bytes:
        size = min(next(self.sizes), most)
        piece, self.content = self.content[:size], self.content[size:]
        return piece


def read_records(reader: Callable, content: bytes, sizes: list[int]) -> tuple[list, dict, dict]:
    """Return the records of a log, the reasons for which lines were left out, and the first place of each."""
    skipped = Skipped()
    found = list(reader(CutStream(content, sizes), skipped))
    return found, dict(skipped.reasons), skipped.first


WHOLE = [1 << 30]
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=5) | st.just(WHOLE)
