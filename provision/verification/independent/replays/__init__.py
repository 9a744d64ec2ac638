"""Replays of single requests: their arrivals, their queues, and the fraction that is late."""
