"""The store of the service: documents by digest, jobs, the documents that they use, and their events."""
