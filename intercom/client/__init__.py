"""Talking to a hub: ``blocking`` and ``spawn`` need the standard library only."""
