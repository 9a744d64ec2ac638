"""Times of a language model's operators by their shapes, and of the iterations that are composed of them."""
