"""Slices that different workloads share, beside segments: ruin and recreate, bound by a relaxation."""
