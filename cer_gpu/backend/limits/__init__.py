"""Kernels of limits over the stream: LIMIT n EVERY d."""
