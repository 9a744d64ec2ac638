"""Readers of other tools' files, which become records of this package."""
