"""How many random cases each test draws, and which: few in `make test`, all in `make test-all`.

Sizes are written as those of `make test-all`. CER_GPU_EXAMPLES scales them all at once.

The cases are the same in each run. With CER_GPU_DRAWS=anew they are others, of a seed that the run prints;
CER_GPU_DRAWS=<seed> draws those again.
"""

from __future__ import annotations

import os
import secrets

ALL = 30  # the value of CER_GPU_EXAMPLES in `make test-all`
EXAMPLES = int(os.environ.get("CER_GPU_EXAMPLES", "3"))

if os.environ.get("CER_GPU_DRAWS") == "anew":
    os.environ["CER_GPU_DRAWS"] = str(1 + secrets.randbelow(2**31))  # the same for all processes of this run
SEED = int(os.environ.get("CER_GPU_DRAWS", "0"))
"""Seed of all random cases; 0: those of every run."""


def scaled(n: float, most: int | None = None) -> int:
    """Return the number of cases of a test that has n in `make test-all`, at least one and `most` at most."""
    found = max(1, round(n * EXAMPLES / ALL))
    return found if most is None else min(found, most)


def seeds(n: int) -> range:
    """Return n seeds of random cases, from 0, or from the seed of this run."""
    return range(SEED, SEED + n)
