"""A second verifier. It shares no code with the planner or with the first verifier, and imports nothing of them.

It reads the files itself, computes batch times by the equations of the papers and of the documentation, and replays the
queues with its own simulation. `judge` is its entry.
"""
