"""Writes plans as files for other tools, with one module per target."""
