"""Experiments of papers that no plan comes out of."""
