"""EQL, Elastic's Event Query Language: its texts become the formulas and predicates that CEQL's become."""
