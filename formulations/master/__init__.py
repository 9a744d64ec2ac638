"""The master program over partitions, patterns and replica sets, solved by column generation."""
