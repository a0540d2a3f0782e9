"""Kernels for filters between events: instances and their indexes, tests, paths, and choice."""
