"""Rivals: published systems that the five papers compare themselves with, and others that plan the same things."""
