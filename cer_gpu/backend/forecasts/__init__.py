"""Kernels of forecasts: states of substreams, and the waiting times that begin in them."""
