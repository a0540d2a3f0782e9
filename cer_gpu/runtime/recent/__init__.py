"""SELECT RECENT: the partial matches that are pending, by step and key."""
