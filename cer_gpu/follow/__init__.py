"""A live source: files that appear in a folder, evaluated as they come, with results that are written exactly once."""
