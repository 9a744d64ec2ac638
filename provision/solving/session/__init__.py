"""Sessions: planning the same fleet again and again."""
