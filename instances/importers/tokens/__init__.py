"""Readers of what load generators and planners of language models write."""
