"""A live source: files of a folder, or versions of a table, as they come, with results that are written exactly once."""
