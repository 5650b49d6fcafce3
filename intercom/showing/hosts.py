"""Tags in which hosts of agents put their own words, or what a person has said.

Models take what stands in them for their host's, or their user's. So no message may hold
one: :func:`intercom.showing.text.neutral` writes its bracket as an escape. The names are
those that the hosts' programs use; a tag that ordinary markup has, too, is not listed.
"""

from __future__ import annotations

_SEVERAL = ("system-reminder", "system-notification", "system-note", "system-message")
_CLAUDE = (
    "cross-session-message",
    "task-notification",
    "teammate-message",
    "user-prompt-submit-hook",
    "command-name",
    "command-message",
    "command-args",
    "local-command-",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "user-memory-input",
    "new-diagnostics",
    "ide-selection",
    "ide-opened-file",
    "persisted-output",
    "tool-use-error",
    "function-results",
    "function-calls",
    "subagent-hand-back",
    "mcp-server-note",
)
_CODEX = (
    "hook-prompt",
    "environment-context",
    "user-instructions",
    "user-action",
    "user-shell-command",
    "user-verification-notice",
    "turn-aborted",
    "subagent-notification",
    "collaboration-mode",
    "permissions",
    "skills-instructions",
    "plugins-instructions",
    "context-window-reminder",
    "codex-delegation",
)
_CURSOR = ("user-query", "user-info", "user-rules", "additional-data", "attached-files")
_GOOGLE = (
    "user-request",
    "additional-metadata",
    "ephemeral-message",
    "hook-context",
    "session-context",
    "state-snapshot",
    "start-of-turn",
    "end-of-turn",
)

#: How the names of such tags begin, in lower case, with ``-`` for every joint.
TAGS = _SEVERAL + _CLAUDE + _CODEX + _CURSOR + _GOOGLE
