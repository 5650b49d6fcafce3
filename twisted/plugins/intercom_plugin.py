"""Tells twistd and twist of ``intercom``. Every run of either imports this: data only."""

from twisted.application.service import ServiceMaker

intercom = ServiceMaker(
    "intercom",
    "intercom.tap",
    "The hub of one intercom channel, through which agent sessions talk.",
    "intercom",
)
