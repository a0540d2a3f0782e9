"""Query text to an immutable, checked formula."""
