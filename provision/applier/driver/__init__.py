"""NVIDIA's driver through NVML: calls with a deadline, observation, and changes."""
