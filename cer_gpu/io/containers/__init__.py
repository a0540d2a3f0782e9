"""Containers of files: compression told by content, members of zip archives, and the limit of what comes out."""
