"""Arrays to arrays: the compiled loops, and the CUDA sources."""
