"""The bus, pure: who is here, what they ask one another, and mail for those who are not.

One model for every dialect: ``directory``, ``asks``, ``outcomes``, ``routes``, ``mailbox``,
``extensions``, ``presence``, ``limits`` and ``turns`` know sessions by scope and id, connections
by number, and no wire format. ``broker`` composes them for both pi clients. What of it speaks
their frames stands beside it: ``lines`` (in order, and not too fast), ``reception``,
``entrance``, ``judging`` and ``posting`` (pi-intercom senders), ``passing``, ``staging`` and
``publishing`` (pi-subagents senders), ``delivering``, ``carrier``, ``handover`` and ``letters``,
``recalling``, ``sharing``; ``handling`` shares out what comes, ``foreign`` and ``hearing`` are
about sessions that speak lines, ``world`` is what they have in common, ``effects`` what they
ask of the shell.

``now`` is milliseconds since 1970 that never go back: a shell takes them from a monotonic clock.
Ids are drawn by a function passed in, and another one tells what directory a path leads to.
"""
