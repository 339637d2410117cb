"""The same verbs where the rows do not fit: folders of files, Ray, SQL."""
