"""Explanation of a query: words, automaton, choices, and counts over events (`cer_gpu.Query.explain`)."""
