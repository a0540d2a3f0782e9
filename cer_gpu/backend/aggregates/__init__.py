"""Kernels of aggregates over the events of matches."""
