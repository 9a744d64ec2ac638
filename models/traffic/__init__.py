"""Arrivals, queues, and the rules by which replicas keep an SLO under them."""
