"""Who leads a channel."""
