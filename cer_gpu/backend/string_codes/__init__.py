"""Kernels of sets of patterns: strings laid out and folded, read once for all patterns, and the results of tests."""
