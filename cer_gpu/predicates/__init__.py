"""Guards of the automaton over whole columns: typed terms, their interpreter and the code generated from them."""
