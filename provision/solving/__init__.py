"""From an instance to a verified plan."""
