"""Golden transcripts: what connections say, and all that follows, line by line.

Inputs::

    a b               these connect and register as ``a``, ``b``; nothing of it is looked at
    a {"name": ...}   one, with more of its session (and, in ``register``, of its frame)
    sub w v           these connect and register as pi-subagents clients, as ``w-session``, ...
    a> {...}          connection a sends a frame
    connect a [tcp]   ; gone a ; garbled a ; paused a ; drained a ; +1000 (ms, then a tick)
    lines n {...}     session n, which speaks lines, is here; ``lines n gone``: not any more
    write n a m1 {}   the hub core stores its line for a: id and payload (and ``reply_to``)
    taken w           the peer of w has read all that was written to it
    restart           the broker dies, and another begins with the same files
    closing           the broker is told to go
    fail ask / mend   ; hold keep / let go keep
    show keep ask     effects of these kinds are looked at, too

What follows an input, in order: ``a< {...}`` a frame to a, ``a! ends`` or ``a! closes``, and
``! ask m1`` an effect. Strings that begin with @ stand for more, see ``_expand``.
"""

from __future__ import annotations

import json
from typing import Any

from bus_scene import SESSION, STATE_ID, Scene

from intercom.core.bus.limits import Limits

_VERBS = ("gone", "garbled", "paused", "drained", "taken")


class Script:
    """Runs one transcript."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.scene = Scene(limits=limits)
        self.scene.said.clear()
        self.shown: set[str] = set()
        self.got: list[tuple[str, Any]] = []

    def run(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            where = f"line {number}: {line}"
            try:
                if not self._expects(line, where):
                    assert not self.got, f"{where}\nfollows, and was not expected: {self.got}"
                    self._input(line)
                    self._collect()
            except (KeyError, ValueError) as error:
                raise AssertionError(where) from error
        assert not self.got, f"at the end: {self.got}"
        assert not self.scene.broker.pending or self.scene.kept_back

    def _collect(self) -> None:
        """What followed, without effects that are not looked at."""
        self.got += [
            (who, what)
            for who, what in self.scene.said
            if who != "!" or (isinstance(what, tuple) and what[0] in self.shown)
        ]
        self.scene.said.clear()

    # -- what is expected

    def _expects(self, line: str, where: str) -> bool:
        if line.startswith("! "):
            want: tuple[str, Any] = ("!", line[2:])
        elif "! " in line[:12]:
            who, _, what = line.partition("! ")
            want = (who, what)
        elif "< " in line[:12]:
            who, _, what = line.partition("< ")
            want = (who, self._frame(what))
        else:
            return False
        assert self.got, f"{where}\nwas expected, and nothing followed"
        who, what = self.got.pop(0)
        if isinstance(what, tuple):
            what = " ".join(map(str, what))
        if isinstance(what, dict) and isinstance(want[1], dict):
            assert (who, list(what)) == (want[0], list(want[1])), f"{where}\ngot {who} {what}"
        assert (who, what) == want, f"{where}\ngot {who} {json.dumps(what)}"
        return True

    def _frame(self, text: str) -> Any:
        word, _, rest = text.partition(" ")
        if word.startswith("@"):
            return getattr(self, "_" + word[1:])(rest)
        return self._expand(json.loads(text))

    def _expand(self, value: Any) -> Any:
        """``"@a"``: the row of a; ``{"@": "a", ...}``: with changes; ``"@now"``: the time.

        ``"@@w"`` is what pi-intercom clients see of w.
        """
        if isinstance(value, dict):
            inner = {key: self._expand(item) for key, item in value.items()}
            base = inner.pop("@", None)
            if base is None:
                return inner
            self.scene.rows[base] = {**self.scene.rows[base], **inner}
            return self.scene.rows[base]
        if isinstance(value, list):
            return [self._expand(item) for item in value]
        if value == "@now":
            return self.scene.now
        if isinstance(value, str) and value.startswith("@@"):
            return self.scene.seen(value[2:])
        if isinstance(value, str) and value.startswith("@"):
            return self.scene.rows[value[1:]]
        return value

    def _ok(self, rest: str) -> Any:
        return _done(rest, "socket_delivered")

    def _queued(self, rest: str) -> Any:
        return _done(rest, "queued")

    def _no(self, rest: str) -> Any:
        message_id, code, reason = rest.split(" ", 2)
        retryable = code.endswith("*")
        return {
            "type": "delivery_failed",
            "messageId": message_id,
            "reason": reason,
            "delivery": "failed",
            "code": code.rstrip("*"),
            "retryable": retryable,
            "outcomeKnown": True,
        }

    def _message(self, rest: str) -> Any:
        """``@message from id [fields]``: received and delivered now, unless fields say so."""
        sender, message_id, *more = rest.split(" ", 2)
        fields = self._expand(json.loads(more[0])) if more else {}
        stamps = {"brokerReceivedAt": self.scene.now, "brokerDeliveredAt": self.scene.now}
        message = {**_message(message_id, {}), **fields}
        for name in stamps:
            message[name] = message.pop(name, stamps[name])
        row = message.pop("from", None) or self.scene.seen(sender)
        return {"type": "message", "from": row, "message": message}

    # what pi-subagents clients are told

    def _plain(self, rest: str) -> Any:
        """``@plain from id [fields]``: without the hub's times."""
        sender, message_id, *more = rest.split(" ", 2)
        fields = self._expand(json.loads(more[0])) if more else {}
        row = fields.pop("from", None) or self.scene.rows[sender]
        row = {key: row[key] for key in row if key not in ("topics", "subscriptions")}
        return {"type": "message", "from": row, "message": _message(message_id, fields)}

    def _done(self, rest: str) -> Any:
        return {"type": "delivered", "messageId": rest}

    def _failed(self, rest: str) -> Any:
        message_id, reason = rest.split(" ", 1)
        return {"type": "delivery_failed", "messageId": message_id, "reason": reason}

    def _waits(self, rest: str) -> Any:
        reason = "Queued for replace-mode delivery"
        return {"type": "delivery_queued", "messageId": rest, "reason": reason}

    # -- what is said

    def _input(self, line: str) -> None:
        scene = self.scene
        words = line.split(" ")
        if "> " in line[:12]:
            who, _, what = line.partition("> ")
            scene.say(who, self._said(what))
        elif line.startswith("+"):
            scene.tick(int(line[1:]))
        elif words[0] == "connect":
            scene.connect(words[1], trusted="tcp" not in words)
        elif words[0] in _VERBS:
            scene.do(words[0], words[1])
        elif words[0] in ("restart", "mend", "closing"):
            {"restart": scene.restart, "mend": scene.failing.clear, "closing": scene.closing}[
                words[0]
            ]()
        elif words[0] in ("fail", "hold", "show"):
            kinds = {"fail": scene.failing, "hold": scene.held, "show": self.shown}[words[0]]
            kinds.update(words[1:])
        elif words[:2] == ["let", "go"]:
            scene.let_go(words[2])
        elif words[0] in ("lines", "write"):
            self._foreign(words)
        elif words[0] == "sub":
            self._join_plain(words[1:])
        elif "{" in line:
            session = json.loads(line.partition(" ")[2])
            scene.join(words[0], session, **session.pop("register", {}))
        else:
            for name in words:
                assert name.isalnum(), line
                scene.join(name)

    def _foreign(self, words: list[str]) -> None:
        if words[0] == "write":
            self.scene.write(*words[1:4], json.loads(" ".join(words[4:])))
        else:
            gone = words[2] == "gone"
            self.scene.elsewhere(words[1], None if gone else json.loads(" ".join(words[2:])))

    def _join_plain(self, words: list[str]) -> None:
        if words[1:2] and words[1].startswith("{"):
            session = json.loads(" ".join(words[1:]))
            self.scene.join_plain(words[0], session, **session.pop("register", {}))
            return
        for name in words:
            assert name.isalnum(), words
            self.scene.join_plain(name)

    def _said(self, text: str) -> Any:
        word, _, rest = text.partition(" ")
        if word == "@send":
            to, message_id, *more = rest.split(" ", 2)
            fields = json.loads(more[0]) if more else {}
            outer = [key for key in fields if key.startswith("target")]
            exact = {key: fields.pop(key) for key in outer}
            return {"type": "send", "to": to, "message": _message(message_id, fields), **exact}
        if word == "@register":
            fields = json.loads(rest) if rest else {}
            session = {**SESSION, **fields.pop("session", {})}
            frame = {"type": "register", "session": session, **fields}
        else:
            frame = json.loads(text)
        if frame.get("stateId") == "@":
            frame["stateId"] = STATE_ID
        return frame


def _message(message_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": message_id,
        "timestamp": 5,
        "content": {"text": f"text of {message_id}"},
        **fields,
    }


def _done(message_id: str, delivery: str) -> dict[str, Any]:
    return {
        "type": "delivered",
        "messageId": message_id,
        "delivery": delivery,
        "retryable": False,
        "outcomeKnown": True,
    }
