"""EQL, Elastic's Event Query Language: its queries become formulas and predicates, as those of CEQL do."""
