"""The same verbs where the rows do not fit into memory: folders of files, Ray, and SQL."""
