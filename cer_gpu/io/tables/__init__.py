"""Tables of Delta Lake and Iceberg: their snapshots as sources of events, what was appended since, and appending."""
