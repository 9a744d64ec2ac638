"""inferno (llm-inferno, IBM): its queueing analyzer and its greedy algorithm, implemented from their public
descriptions.
"""
