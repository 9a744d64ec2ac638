"""Jobs: the queue, the processes that work on it, what each verb does, and the stream of what happens."""
