"""Complex events as Arrow rows: schemas, rows, and the events that rows are made of."""
