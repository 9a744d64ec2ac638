"""Problem files: reading, checking, writing."""
