"""Measures message hubs against each other: one load, every message checked, ratios."""
