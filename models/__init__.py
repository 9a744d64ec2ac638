"""The ground floor: what things are (GPU types, workloads, plans) and how they behave (performance models)."""
