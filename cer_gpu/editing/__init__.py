"""Help while a query is written, in editors and notebooks: what is wrong, what may stand here, and what it means."""
