"""Record batches to columns, predicate bits, symbols, runs and complex events."""
