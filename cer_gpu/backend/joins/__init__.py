"""Kernels for join predicates: instances and their indexes, tests, paths, and choice."""
