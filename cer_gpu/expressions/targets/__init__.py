"""Ways to compute terms: NumPy, source for Numba and CUDA, programs of joins and row patterns, Arrow for measures."""
