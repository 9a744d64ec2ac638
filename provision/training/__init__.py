"""Training of InSS's scheduler: the environment, the soft actor-critic, files, pictures."""
