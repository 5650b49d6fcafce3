"""Where the pi clients look for their broker, and what it keeps there. Standard library only."""
