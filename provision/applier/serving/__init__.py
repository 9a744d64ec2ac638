"""What runs on slices: MPS daemons, replicas' environments and server processes."""
