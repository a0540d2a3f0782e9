"""Files that tasks read by themselves: only numbers of row groups reach them through Spark, and only results leave.

`found` holds what a plan is made of; `footers` finds it in files, `folders` in their paths; `opening` opens files,
`stores` knows where they lie, `casting` compares their types with Spark's; `scan` finds the files of a DataFrame;
`layout` puts row groups in order and `pieces` deals them; `reading` and `task` are what workers do.
"""
