"""Pipelines by name: the log sources of rules as tests of events, and their fields as columns."""
