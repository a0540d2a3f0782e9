"""The state of one evaluation and the arrays that its kernels work on, one file for each runtime."""
