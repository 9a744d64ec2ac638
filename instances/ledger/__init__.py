"""The best-known plans, each verified."""
