"""The hub's Twisted shell: connections, effects, files, time."""
