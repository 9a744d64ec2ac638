"""Arrivals, queues and the rules that keep an SLO under them."""
