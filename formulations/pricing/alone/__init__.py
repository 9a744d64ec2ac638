"""One replica per slice."""
