"""ParvaGPU (SC 2024)."""
