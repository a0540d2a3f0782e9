"""Arrow memory as NumPy views: columns, strings as codes, clocks, and memory for results."""
