"""JSON Schemas of the file formats."""
