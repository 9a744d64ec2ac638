"""Best-known plans, each verified."""
