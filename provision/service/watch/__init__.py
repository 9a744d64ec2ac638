"""What a running server needs: settings, access control, limits on requests, metrics for Prometheus, and the log."""
