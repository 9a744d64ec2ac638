"""NVIDIA's driver: calls of NVML that end, what they tell, and what they change."""
