"""The way of sharing in which each slice has one replica."""
