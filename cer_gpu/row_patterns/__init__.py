"""MATCH_RECOGNIZE: patterns over the rows of ordered partitions, one match after another (SQL:2016)."""
