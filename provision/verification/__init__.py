"""Does a plan hold? Everything is recomputed from the plan and the models."""
