"""Bytes to messages and back, one module a dialect. Pure: no I/O, no clock, no randomness."""
