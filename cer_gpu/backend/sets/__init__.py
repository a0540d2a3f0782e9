"""Kernels of sets of guards: columns by their addresses, and the rows of all guards of a block."""
