"""Who may come in and how much they may bring; what Prometheus and the log are told."""
