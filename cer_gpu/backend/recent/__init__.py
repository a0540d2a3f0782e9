"""Kernels of SELECT RECENT: the partial match that is pending for each step and key."""
