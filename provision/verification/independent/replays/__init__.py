"""Requests replayed one by one: when they come, where they wait, and which part of them is late."""
