"""A first instance, from nothing or from tables that somebody measured: what ``provision init`` writes."""
