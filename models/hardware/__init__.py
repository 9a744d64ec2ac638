"""GPU types and their MIG geometry."""
