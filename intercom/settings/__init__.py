"""What can be set, where it may stand, and which place wins. Standard library only."""
