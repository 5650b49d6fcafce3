"""The hub's state machine, pure: inputs in, effects out.

No Twisted, no files, no clock and no randomness here; ``now`` is an argument
and whatever must happen is returned as data (:mod:`intercom.core.effects`).
"""
