"""inferno (llm-inferno, IBM): its queueing analyzer and its greedy, from their descriptions."""
