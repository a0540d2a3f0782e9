"""``cer-gpu forecast``: its options, and the rows that it shows."""
