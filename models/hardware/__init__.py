"""GPU types, their MIG geometry, nodes of several GPUs, and list prices."""
