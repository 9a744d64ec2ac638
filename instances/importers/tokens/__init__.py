"""Readers of files that load generators and planners of language models write."""
