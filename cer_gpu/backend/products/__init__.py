"""Kernels of parallelised automata: lists of partial matches under keys, products of them, and their listing."""
