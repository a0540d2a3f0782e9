"""Arrow memory as NumPy views: columns, texts as codes, clocks, and memory for results."""
