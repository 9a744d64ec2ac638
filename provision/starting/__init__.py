"""Makes the first instance that ``provision init`` writes, from nothing or from measured tables."""
