"""Input and output: sources of events, and sinks of matches."""
