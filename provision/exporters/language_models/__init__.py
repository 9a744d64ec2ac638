"""Exports a plan of language models to their servers: vLLM itself, and what runs vLLM on Kubernetes."""
