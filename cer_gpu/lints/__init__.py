"""Remarks on queries that compile and yet are hardly meant so: `lint`."""

from cer_gpu.lints.linting import Lint, lint, types_outside

__all__ = ["Lint", "lint", "types_outside"]
