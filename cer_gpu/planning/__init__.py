"""A checked formula to the plan of its evaluation."""
