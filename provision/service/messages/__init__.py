"""Requests, answers and problems as pydantic models; and the readers of requests' bodies."""
