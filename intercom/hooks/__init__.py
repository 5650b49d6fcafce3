"""What hosts of agents run at certain moments: a word that mail waits, never the mail itself.

``hosts`` is the table of who calls and in which form it wants to hear; ``bell`` looks at the
files; ``calls`` does one call. Standard library only: a hook runs at every prompt, and mostly
has nothing to say. No hub is asked, none is started, and no lock is waited for.
"""
