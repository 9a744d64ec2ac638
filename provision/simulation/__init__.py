"""Discrete-event replay of a plan: arrivals, batching, servers, interference, statistics."""
