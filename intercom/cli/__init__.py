"""The ``intercom`` command, one file a verb, loaded when it is used."""
