"""A live source: files of a folder, or versions of a table, as they come; each result is written exactly once."""
