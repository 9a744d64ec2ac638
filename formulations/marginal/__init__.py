"""What one more request costs."""
