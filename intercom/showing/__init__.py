"""What is shown of messages, to models and to people: pure, of the standard library only.

``blocks`` renders messages, ``text`` makes text of strangers harmless, ``words`` says counts
and times. Whoever shows anything that a sender chose, a name for example, goes through them.
"""
