"""What stands in the inboxes: lines that are no messages, messages that stand twice, odd times."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

from intercom.client.doctor.cures import end_line
from intercom.client.doctor.findings import (
    MOST_SPANS,
    NOTE,
    WARNING,
    Cure,
    Finding,
    counted,
    duration,
)
from intercom.client.doctor.inboxes import Scan
from intercom.client.doctor.patient import Patient
from intercom.records import Span
from intercom.wire.envelope import MAX_LINE

#: Seconds by which clocks of one machine may seem to differ.
AHEAD = 60.0


def torn(patient: Patient) -> Iterator[Finding]:
    """An unfinished last line, while nobody holds the lock under which it would be written."""
    for one in patient.scans:
        if one.torn is None or one.busy:
            continue
        yield Finding(
            WARNING,
            "torn-tail",
            f"whoever wrote last to the inbox of {_who(one)} died in the middle of a line: "
            f"{counted(one.size - one.torn, 'byte')} without an end",
            f"intercom {patient.where} doctor --fix; the next writer ends it, too",
            one.path,
            ((one.torn, one.size),),
            session=one.session,
            cure=Cure(f"end {one.path}", partial(end_line, patient.paths, one.encoded)),
        )


def bad(patient: Patient) -> Iterator[Finding]:
    """Complete lines that are no message. Readers pass over them."""
    for one in patient.scans:
        yield from _lines(patient, one, "bad-lines", "no message", one.content.bad)
        long = f"longer than {MAX_LINE} bytes"
        yield from _lines(patient, one, "long-lines", long, one.content.long)


def _lines(
    patient: Patient, one: Scan, code: str, what: str, spans: list[Span]
) -> Iterator[Finding]:
    ahead = [span for span in spans if span.end > one.offset]
    if not spans:
        return
    are = "is" if len(spans) == 1 else "are"
    text = f"{counted(len(spans), 'line')} in the inbox of {_who(one)} {are} {what}"
    if not ahead:
        text += ", and passed over long since"
    elif len(ahead) < len(spans):
        text += f", {len(ahead)} of them not yet passed over"
    yield Finding(
        WARNING if ahead else NOTE,
        code,
        f"{text} ({_reasons(spans)})",
        f"nothing else is lost; ask the sender to send again, and see the rest: "
        f"intercom {patient.where} poll --session {shlex.quote(one.session or one.encoded)}"
        if ahead
        else "",
        one.path,
        _places(spans),
        len(spans),
        one.session,
    )


def _reasons(spans: list[Span]) -> str:
    return ", ".join(dict.fromkeys(span.reason for span in spans[:MOST_SPANS]))


def repeated(patient: Patient) -> Iterator[Finding]:
    """Messages that stand twice. Readers leave the second out."""
    for one in patient.scans:
        spans = one.content.repeated
        if spans:
            stand = "message stands" if len(spans) == 1 else "messages stand"
            yield Finding(
                NOTE,
                "repeated-messages",
                f"{len(spans)} {stand} twice in the inbox of {_who(one)}; a program of the "
                f"original mesh has probably sent again what was stored",
                "",
                one.path,
                _places(spans),
                len(spans),
                one.session,
            )


def clock(patient: Patient) -> Iterator[Finding]:
    """The last message of an inbox claims to be of a time that has not come."""
    for one in patient.scans:
        newest = one.content.newest
        if newest is not None and newest > patient.world.now + AHEAD:
            ahead = duration(newest - patient.world.now)
            yield Finding(
                WARNING,
                "clock-ahead",
                f"the last message to {_who(one)} is dated {ahead} from now: a clock was, or is, "
                f"wrong",
                "compare the clock with the true time: date",
                one.path,
                session=one.session,
            )


def _who(one: Scan) -> str:
    return repr(one.session or one.encoded)


def _places(spans: list[Span]) -> tuple[tuple[int, int], ...]:
    return tuple((span.start, span.end) for span in spans[:MOST_SPANS])
