"""Planning: from a checked query to its logical plan, binding and physical plan."""
