"""The master program over partitions, contents and covers."""
