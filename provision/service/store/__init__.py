"""What the service keeps: documents by digest, jobs, what they use, and their events."""
