"""Kernels for chains: stacks of instances, and counting."""
