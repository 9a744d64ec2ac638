"""Makes answers as plain content, which the command line prints and the service sends: lists, comparisons,
explanations.
"""
