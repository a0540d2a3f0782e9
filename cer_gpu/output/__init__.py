"""Matches as Arrow rows: the forms of the output, and the events retained for them."""
