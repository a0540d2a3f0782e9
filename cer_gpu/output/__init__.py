"""Matches as Arrow rows: the forms of the results, and the events retained for them."""
