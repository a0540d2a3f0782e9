"""The number of random cases of each test: few in `make test`, more in `make test-rest`, all in `make test-all`.

Sizes are written as those of `make test-all`. CER_GPU_EXAMPLES scales them all at once.
"""

from __future__ import annotations

import os

ALL = 30  # the value of CER_GPU_EXAMPLES in `make test-all`
EXAMPLES = int(os.environ.get("CER_GPU_EXAMPLES", "3"))


def scaled(n: float, most: int | None = None) -> int:
    """Return the number of cases of a test that has n in `make test-all`, at least one and `most` at most."""
    found = max(1, round(n * EXAMPLES / ALL))
    return found if most is None else min(found, most)
