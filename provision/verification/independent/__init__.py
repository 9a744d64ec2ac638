"""A second verifier. It neither shares code with the planner and the first verifier nor imports them.

It reads the files itself, computes batch times by the equations of the papers and the documentation, and replays queues
with its own simulation. The entry point is `judge`.
"""
