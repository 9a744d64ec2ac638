"""How a server is run: who may come in, how much they may bring, what Prometheus and the log are told."""
