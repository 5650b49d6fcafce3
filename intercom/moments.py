"""Times as messages carry them, written and read without ``datetime``, which takes long to load.

Standard library only; it looks at no clock.
"""

from __future__ import annotations

_DAY = 86_400
#: Beyond this lies the year 10000, which has a digit too many.
_LAST = 253_402_300_799
#: From the first of March of the year 0 to 1970. Years begin in March here, so that the odd day
#: of a leap year is their last; 400 of them have 146,097 days.
_TO_1970 = 719_468
_MONTHS = 153  # days of five months, of 30 and 31 days in turn, wherever they begin


#: The last day that was written, by its number.
_dates: dict[int, str] = {}


def written(epoch_s: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC with microseconds.

    :raise ValueError: it is no year that has four digits (or OverflowError).
    """
    if not 0 <= epoch_s < _LAST:
        from datetime import UTC, datetime  # it knows what can be written of these

        return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="microseconds")
    whole = int(epoch_s)
    fraction = round((epoch_s - whole) * 1e6)
    if fraction == 1_000_000:
        whole, fraction = whole + 1, 0
    days, second = divmod(whole, _DAY)
    date = _dates.get(days)
    if date is None:
        _dates.clear()
        year, month, day = _date(days)
        date = _dates[days] = f"{year}-{month:02}-{day:02}T"
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{date}{hour:02}:{minute:02}:{second:02}.{fraction:06}+00:00"


def read(text: str) -> float:
    """Seconds since 1970, of any text of ISO 8601; without a zone it is UTC.

    :raise ValueError: it is none (or OverflowError: it is out of reach).
    """
    try:  # most are written as we write them
        year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
        second = (int(text[11:13]) * 60 + int(text[14:16])) * 60 + int(text[17:19])
        seconds = _days(year, month, day) * _DAY + second
        found = (seconds * 1_000_000 + int(text[20:26])) / 1_000_000
        if written(found) == text:
            return found
    except (ValueError, OverflowError):
        pass
    from datetime import UTC, datetime

    said = datetime.fromisoformat(text)
    return said.replace(tzinfo=said.tzinfo or UTC).timestamp()


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day, by the days since 1970."""
    cycle, day = divmod(days + _TO_1970, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // _MONTHS
    day -= (_MONTHS * month + 2) // 5
    if month < 10:
        return 400 * cycle + year, month + 3, day + 1
    return 400 * cycle + year + 1, month - 9, day + 1


def _days(year: int, month: int, day: int) -> int:
    """The days since 1970, by year, month and day."""
    if month < 3:
        year, month = year - 1, month + 12
    before = 365 * year + year // 4 - year // 100 + year // 400
    return before + (_MONTHS * (month - 3) + 2) // 5 + day - 1 - _TO_1970
