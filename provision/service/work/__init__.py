"""Jobs: the queue, the worker processes, what each verb does, and the stream of events."""
