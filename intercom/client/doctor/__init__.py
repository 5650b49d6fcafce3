"""Looking over a channel: what is wrong with it, what to do, and curing what is safe to cure.

Each check is a function that takes a :class:`~intercom.client.doctor.patient.Patient` and
gives findings. A look makes nothing, starts nothing, and takes a lock for a moment at most.
Standard library only.
"""
