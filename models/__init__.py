"""The lowest layer: describes things (GPU types, workloads, plans) and predicts how models run on them (performance
models).
"""
