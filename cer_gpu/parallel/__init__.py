"""One stream on several threads, by ranges or by keys."""
