"""Problem files: reading, writing, importing, generating; the shipped instances are in data/."""
