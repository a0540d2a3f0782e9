"""Predicates on a GPU: generated kernels, and blocks that are copied and evaluated two at a time."""
