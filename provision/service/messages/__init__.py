"""Requests, answers and problems as pydantic models, and bodies of requests."""
