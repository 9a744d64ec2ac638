"""gpu-lets exactly: every way to use one GPU as a column of a set covering."""
