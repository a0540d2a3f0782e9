"""Kernels of funnels: how far each start of a chain gets."""
