"""``intercom mcp``: the server of tools that an agent's host starts for each of its sessions."""
