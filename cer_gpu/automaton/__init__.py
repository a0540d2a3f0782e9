"""Formula to complex event automaton to deterministic tables, made on demand."""
