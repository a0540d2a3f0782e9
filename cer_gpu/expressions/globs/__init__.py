"""Sets of patterns of GLOB: their compilation for the kernels, and the strings that each one matches."""
