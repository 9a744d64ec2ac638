"""Measuring models on a GPU and reading what other profilers measured."""
