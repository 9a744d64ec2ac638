"""inferno (llm-inferno, IBM): its queueing analyzer and its greedy algorithm, written from their descriptions."""
