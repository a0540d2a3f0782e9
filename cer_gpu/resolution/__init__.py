"""Queries fitted to the schema of the events: their fields found, or NULL; shared by the languages that need it."""
