"""The revisions of the tables, in order."""
