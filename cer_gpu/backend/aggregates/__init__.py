"""Kernels of aggregates over the events of complex events."""
