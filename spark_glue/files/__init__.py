"""Files that tasks read by themselves: only numbers of row groups reach them through Spark, and only results leave.

`stored_events` has the facts from which a job is planned; `footers` reads them from files, `folders` from their paths;
`opening` opens files, `stores` resolves their file systems, `casting` compares their types with Spark's; `scan` and
`connect` list the files of a DataFrame; `layout` orders row groups and `pieces` distributes them; `ordered_reading` and
`file_evaluation` run in the workers.
"""
