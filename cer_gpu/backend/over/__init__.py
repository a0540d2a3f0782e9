"""Kernels of aggregates over the events before each event: pending values by key, sums without error, extremes."""
