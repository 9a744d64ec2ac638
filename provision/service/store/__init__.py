"""The store of the service: documents by digest, jobs, the documents that jobs use, and the events of jobs."""
