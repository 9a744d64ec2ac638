"""MPS daemons, environments of replicas, and server processes on slices."""
