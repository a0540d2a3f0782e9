"""What a query means and how it runs: words, automaton, choices, and counts over events (`cer_gpu.Query.explain`)."""
