"""Fast methods, named after their systems, and ours; they know the models and the search model, and nothing above."""
