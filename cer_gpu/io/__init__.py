"""Sources of events and sinks of complex events."""
