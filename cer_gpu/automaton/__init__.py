"""Compilation of a formula to a complex event automaton (CEA), and to deterministic tables, made on demand."""
