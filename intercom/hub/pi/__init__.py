"""The pi dialects of the hub's shell: connections, effects, small files, and places."""
