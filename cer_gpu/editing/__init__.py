"""Help for writing a query in editors and notebooks: problems, completions, and what the query means."""
