"""The pi dialect: frames and messages of the pi-intercom and pi-subagents clients. Pure."""
