"""Running a server: access control, limits on requests, metrics for Prometheus, and the log."""
