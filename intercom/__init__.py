"""intercom: agent sessions of one machine talk through one hub per channel.

This package imports nothing by itself, so that a command that needs only the
standard library pays for only the standard library.
"""

__version__ = "0.1.0"
