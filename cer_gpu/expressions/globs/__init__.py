"""Sets of patterns of GLOB: their compilation for the kernels, and the texts that each one matches."""
