"""The equations of every kind of performance data: how long batches take."""
