"""Arrow memory as NumPy views: columns, texts as codes, clocks, and the memory that results are written to."""
