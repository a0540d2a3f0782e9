"""Parallelised automata: their tables, and the runtimes that gather partial matches, or count them by keys."""
