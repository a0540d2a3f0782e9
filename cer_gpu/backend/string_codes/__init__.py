"""Kernels of sets of patterns: texts laid out and folded, read once for all patterns, and the answers of each test."""
