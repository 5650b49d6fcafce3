"""Inbox files: their format, their positions, and their implementations of ``ISpool``."""
