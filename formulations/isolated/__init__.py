"""The relaxation of isolated slices that closed networks share, and its bound."""
