"""Plans and bounds from patterns that carry rates, without a grid of rates."""
