"""pi-intercom's own broker as far as addressing, asks, outcomes and the mailbox go.

A plain transcription, line by line where that is possible. Two of its rules are changed as the
protocol page wants them: a runtime's alias is no identity of who left either, and ids of asks
and routes count per session, which tests that draw ids per sender do not see.
"""

from __future__ import annotations

import posixpath
from typing import Any

Info = dict[str, Any]
Key = tuple[str | None, str]


class SeedModel:
    """What each input makes it say: ``said`` holds (connection, frame in short)."""

    def __init__(self, ask_ms: int) -> None:
        self.ask_ms = ask_ms
        self.now = 0
        self.sessions: dict[Key, Info] = {}
        self.gone: dict[Key, Info] = {}
        self.asks: dict[str, Info] = {}
        self.routes: dict[str, tuple[Key, Key]] = {}
        self.mail: list[Info] = []
        self.records: dict[tuple[Key, str], Info] = {}
        self.said: list[tuple[str, tuple[Any, ...]]] = []

    def write(self, session: Info, *frame: Any) -> None:
        self.said.append((session["conn"], frame))

    # -- sessions

    def register(self, conn: str, info: Info) -> None:
        key = (info["scope"], info["id"])
        session = {**info, "conn": conn, "key": key}
        previous = self.sessions.get(key)
        if previous is not None:
            self.clear_routes(key)
        self.sessions[key] = session
        self.gone.pop(key, None)
        self.write(session, "registered", info["id"])
        for other in self.sessions.values():
            if other["key"] != key and other["scope"] == info["scope"]:
                self.write(other, "session_joined", info["id"])
        self.flush(session)

    def leave(self, conn: str) -> None:
        for key, session in list(self.sessions.items()):
            if session["conn"] == conn:
                self.gone.pop(key, None)
                self.gone[key] = session
                del self.sessions[key]
                self.clear_routes(key)
                for other in self.sessions.values():
                    if other["scope"] == session["scope"]:
                        self.write(other, "session_left", session["id"])

    def clear_routes(self, key: Key) -> None:
        self.routes = {mid: route for mid, route in self.routes.items() if key not in route}

    def find(self, table: dict[Key, Info], to: str, scope: str | None) -> list[Info]:
        if (scope, to) in table:
            return [table[scope, to]]
        inside = [one for one in table.values() if one["scope"] == scope]
        named = [one for one in inside if one["name"] and one["name"].lower() == to.lower()]
        return named or [one for one in inside if one["id"].startswith(to)]

    def sharing(self, who: Info) -> list[Info]:
        if not who["name"] or who["alias"]:
            return []
        return [
            one
            for one in self.sessions.values()
            if one["scope"] == who["scope"] and not one["alias"] and same(one, who)
        ]

    # -- send

    def send(self, conn: str, to: str, message: Info, exact: tuple[str, str] | None) -> None:
        me = next((one for one in self.sessions.values() if one["conn"] == conn), None)
        if me is None:
            return
        self.asks = {
            mid: edge
            for mid, edge in self.asks.items()
            if self.now - edge["created"] <= self.ask_ms
        }
        edge = self.asks.get(message["replyTo"]) if message["replyTo"] else None
        if exact is not None:
            print_ = self.fingerprint(message, exact[0])
            if self.replay(me, message, print_):
                return
            target = self.sessions.get((me["scope"], exact[0]))
            if target is None:
                self.fail(me, message, "E_TARGET_NOT_FOUND", print_)
                return
            if target["conn"] != exact[1]:  # stands for the epoch
                self.fail(me, message, "E_TARGET_REBOUND", print_, retryable=True)
                return
            to = exact[0]
        targets = self.find(self.sessions, to, me["scope"])
        if len(targets) == 1:
            self.send_live(me, targets[0], message, edge)
        elif targets:
            self.fail(me, message, "E_AMBIGUOUS_TARGET")
        else:
            absent = self.find(self.gone, to, me["scope"])
            if len(absent) == 1:
                self.send_absent(me, absent[0], message, edge)
            else:
                self.fail(me, message, "E_AMBIGUOUS_TARGET" if absent else "E_TARGET_NOT_FOUND")

    def send_live(self, me: Info, target: Info, message: Info, edge: Info | None) -> None:
        if message["replyTo"] and edge is None:
            self.fail(me, message, "E_REPLY_TARGET")
            return
        print_ = self.fingerprint(message, target["id"])
        if self.replay(me, message, print_):
            return
        route = self.routes.get(message["supersedes"])
        if message["supersedes"] and route != (me["key"], target["key"]):
            self.fail(me, message, "E_SUPERSEDE_TARGET")
            return
        if edge and (edge["to"] != me["key"] or edge["from"] != target["key"]):
            self.fail(me, message, "E_REPLY_TARGET")
            return
        if message["expectsReply"]:
            for mid, other in self.asks.items():
                pair = (other["from"], other["to"])
                if mid != message["replyTo"] and pair == (target["key"], me["key"]):
                    self.fail(me, message, "E_MUTUAL_ASK")
                    return
            self.asks[message["id"]] = {
                "from": me["key"],
                "to": target["key"],
                "created": self.now,
            }
        if message["supersedes"]:
            self.write(target, "message_control", message["supersedes"])
            self.update(me["key"], message["supersedes"], "failed", "E_DELIVERY_SUPERSEDED")
        self.write(target, "message", me["id"], message["id"])
        self.asks.pop(message["replyTo"], None)
        self.routes[message["id"]] = (me["key"], target["key"])
        self.succeed(me, message, print_, "socket_delivered")

    def send_absent(self, me: Info, target: Info, message: Info, edge: Info | None) -> None:
        if message["replyTo"] and edge is None:
            self.fail(me, message, "E_REPLY_TARGET")
            return
        print_ = self.fingerprint(message, target["id"])
        if self.replay(me, message, print_):
            return
        if message["supersedes"]:
            self.fail(me, message, "E_SUPERSEDE_TARGET")
            return
        if edge and (edge["to"] != me["key"] or edge["from"] != target["key"]):
            self.fail(me, message, "E_REPLY_TARGET")
            return
        if message["expectsReply"]:
            self.fail(me, message, "E_TARGET_DISCONNECTED")
            return
        heirs = [one for one in self.sharing(target) if one["key"] != me["key"]]
        if len(heirs) == 1:
            self.write(heirs[0], "message", me["id"], message["id"])
            self.routes[message["id"]] = (me["key"], heirs[0]["key"])
        else:
            self.mail.append({"from": me, "target": target, "id": message["id"]})
        self.asks.pop(message["replyTo"], None)
        self.succeed(me, message, print_, "socket_delivered" if len(heirs) == 1 else "queued")

    # -- outcomes

    def fingerprint(self, message: Info, target: str) -> tuple[Any, ...]:
        names = ("text", "replyTo", "expectsReply", "supersedes")
        return (target, *(message[name] for name in names))

    def replay(self, me: Info, message: Info, print_: tuple[Any, ...]) -> bool:
        record = self.records.get((me["key"], message["id"]))
        if record is None:
            return False
        if record["print"] != print_:
            self.fail(me, message, "E_MESSAGE_ID_REUSE")
        elif record["code"] == "E_TARGET_REBOUND" and record["retryable"]:
            return False
        elif record["state"] in ("socket_delivered", "queued"):
            self.write(me, "delivered", message["id"], record["state"])
        else:
            self.fail(me, message, record["code"])
        return True

    def record(
        self, me: Info, message: Info, print_: Any, state: str, code: str, retry: bool
    ) -> None:
        self.records[me["key"], message["id"]] = {
            "print": print_,
            "state": state,
            "code": code,
            "retryable": retry,
        }

    def update(self, key: Key, message_id: str, state: str, code: str = "") -> None:
        record = self.records.get((key, message_id))
        if record is not None:
            record.update(state=state, code=code, retryable=False)

    def succeed(self, me: Info, message: Info, print_: Any, state: str) -> None:
        self.record(me, message, print_, state, "", False)
        self.write(me, "delivered", message["id"], state)

    def fail(
        self, me: Info, message: Info, code: str, print_: Any = None, retryable: bool = False
    ) -> None:
        if print_ is not None:
            self.record(me, message, print_, "failed", code, retryable)
        self.write(me, "delivery_failed", message["id"], code)

    # -- later

    def receipt(self, conn: str, message_id: str) -> None:
        me = next((one for one in self.sessions.values() if one["conn"] == conn), None)
        route = self.routes.get(message_id)
        if me is not None and route is not None and route[1] == me["key"]:
            sender = self.sessions.get(route[0])
            if sender is not None:
                self.write(sender, "message_receipt", message_id)

    def cancel_message(self, conn: str, message_id: str) -> None:
        me = next((one for one in self.sessions.values() if one["conn"] == conn), None)
        if me is None:
            return
        for entry in self.mail:
            if entry["id"] == message_id and entry["from"]["key"] == me["key"]:
                self.mail.remove(entry)
                self.update(me["key"], message_id, "failed", "E_DELIVERY_CANCELLED")
                self.end_ask(me, message_id)
                self.write(me, "delivered", message_id)
                return
        route = self.routes.get(message_id)
        receiver = self.sessions.get(route[1]) if route else None
        if route is None or route[0] != me["key"] or receiver is None:
            self.write(me, "delivery_failed", message_id)
            return
        self.write(receiver, "message_control", message_id)
        self.end_ask(me, message_id)
        self.update(me["key"], message_id, "failed", "E_DELIVERY_CANCELLED")
        self.write(me, "delivered", message_id)

    def cancel_ask(self, conn: str, message_id: str) -> None:
        me = next((one for one in self.sessions.values() if one["conn"] == conn), None)
        if me is not None:
            self.end_ask(me, message_id)

    def end_ask(self, me: Info, message_id: str) -> None:
        if message_id in self.asks and self.asks[message_id]["from"] == me["key"]:
            del self.asks[message_id]

    # -- the mailbox

    def flush(self, me: Info) -> None:
        unique = len(self.sharing(me)) == 1
        for entry in list(self.mail):
            sender, target = entry["from"], entry["target"]
            if target["scope"] != me["scope"]:
                continue
            by_id = target["key"] == me["key"]
            own = bool(me["name"]) and same(sender, me)
            by_name = unique and not own and same(target, me) and not target["alias"]
            if not (by_id or by_name):
                continue
            self.mail.remove(entry)
            self.write(me, "message", sender["id"], entry["id"])
            self.routes[entry["id"]] = (sender["key"], me["key"])
            self.update(sender["key"], entry["id"], "socket_delivered")


def same(one: Info, other: Info) -> bool:
    """The same name and directory."""
    return (
        (one["name"] or "").lower() == (other["name"] or "").lower()
        and bool(one["name"])
        and posixpath.normpath(one["cwd"]) == posixpath.normpath(other["cwd"])
    )
