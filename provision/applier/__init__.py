"""Putting a plan on the GPUs: what runs, what differs, the steps, the journal, and the way back."""
