"""Queries resolved against the schema of the events: their fields are columns, or NULL; shared by several languages."""
