"""What comes in, what goes out and what is wrong, as pydantic models; bodies of requests."""
