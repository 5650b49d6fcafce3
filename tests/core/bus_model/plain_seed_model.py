"""pi-subagents' own broker: sessions, topics, replace mode. A plain transcription.

Three of its rules are changed, as the protocol page wants them: a replacement does not begin
the wait anew once the first has waited so long; who staged is told if the receiver leaves; and
what is staged is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Info = dict[str, Any]
DELAY = 1500


class PlainSeedModel:
    """What each input makes it say: ``said`` holds (connection, frame)."""

    def __init__(self, draw: Callable[[], str]) -> None:
        self.draw = draw
        self.now = 0
        self.sessions: dict[str, Info] = {}
        self.staged: dict[tuple[str, str, str], Info] = {}
        self.said: list[tuple[str, Info]] = []

    def write(self, session: Info, frame: Info) -> None:
        self.said.append((session["conn"], frame))

    def of(self, conn: str) -> Info | None:
        return next((one for one in self.sessions.values() if one["conn"] == conn), None)

    def touch(self, session: Info, comms: bool) -> None:
        session["info"] = {**session["info"], "lastSeen": self.now}
        if comms:
            session["info"]["lastIntercomActivity"] = self.now

    # -- sessions

    def register(self, conn: str, wished: str, info: Info, topic_frames: bool) -> None:
        session_id = wished if wished not in self.sessions else self.draw()
        full = {**info, "id": session_id, "lastSeen": info.get("lastSeen", self.now)}
        session = {"conn": conn, "info": full, "topicFrames": topic_frames}
        self.sessions[session_id] = session
        frame = {"type": "registered", "sessionId": session_id}
        if topic_frames:
            frame |= {"topicsSupported": True, "topicFrames": True}
        self.write(session, frame)

    def leave(self, conn: str) -> None:
        me = self.of(conn)
        if me is None:
            return
        my_id = me["info"]["id"]
        del self.sessions[my_id]
        for other in self.sessions.values():
            self.write(other, {"type": "session_left", "sessionId": my_id})
        for key, entry in list(self.staged.items()):
            if key[1] == my_id or (key[0] == my_id and entry["message"].get("expectsReply")):
                del self.staged[key]
                sender = self.sessions.get(key[0])
                if sender is not None:
                    reason = "Recipient disconnected before delivery"
                    self.answer(sender, "delivery_failed", entry["message"]["id"], reason)

    def presence(self, conn: str, changes: Info) -> None:
        me = self.of(conn)
        if me is not None:
            me["info"] = {**me["info"], **changes, "lastSeen": self.now}

    # -- listings and topics

    def list(self, conn: str, request: str, stream: bool, change: Info | None) -> None:
        me = self.of(conn)
        if me is None:
            return
        self.touch(me, False)
        try:
            self.change_and_list(me, request, stream, change)
        except ValueError as error:
            self.write(
                me,
                {"type": "sessions", "requestId": request, "sessions": [], "error": str(error)},
            )

    def change_and_list(self, me: Info, request: str, stream: bool, change: Info | None) -> None:
        info, publication = me["info"], None
        if change is not None:
            if not me["topicFrames"]:
                raise ValueError("Topic snapshots unavailable for this client")
            info, publication = self.changed(info, change)
        if publication is not None:
            info = {**info, "lastIntercomActivity": self.now}
        sends = [] if publication is None else self.updates(me, publication)
        infos = [info if one is me else one["info"] for one in self.sessions.values()]
        if change is not None and change["action"] == "restore":
            infos = []
        *frames, last = snapshot(request, infos, stream)
        me["info"] = info
        sender = identity(info)
        receipts = []
        for to, message in sends:
            receipts.append({"to": to, **self.send_to(me, to, sender, message)})
        for frame in frames:
            self.write(me, frame)
        for receipt in receipts:
            frame = {"type": "sessions", "requestId": request, "sessions": []}
            self.write(me, {**frame, "receipts": [receipt], "more": True})
        self.write(me, last)

    def changed(self, info: Info, change: Info) -> tuple[Info, Info | None]:
        topics = {one["topic"]: one for one in info.get("topics", [])}
        subscriptions = {one["topic"]: one for one in info.get("subscriptions", [])}
        action, topic, publication = change["action"], change.get("topic"), None
        if action in ("publish", "restore") and isinstance(topic, dict):
            held = topic.get("resource") and topic.get("ownership") == "released"
            if not topic["text"].strip() or (topic["event"] == "release" and not held):
                raise ValueError("Invalid topic publication")
            known = topics.get(topic["topic"], {"revision": 0})["revision"]
            if action == "publish":
                topic = {**topic, "revision": max(known, topic["revision"] - 1) + 1}
                publication = topic
            if action == "publish" or known < topic["revision"]:
                topics[topic["topic"]] = topic
        elif action in ("subscribe", "restore"):
            subscriptions[change["subscription"]["topic"]] = change["subscription"]
        else:
            subscriptions.pop(topic, None)
        lists = {"topics": [*topics.values()], "subscriptions": [*subscriptions.values()]}
        return {**info, **lists}, publication

    def updates(self, me: Info, topic: Info) -> list[tuple[str, Info]]:
        found = []
        for target in self.sessions.values():
            subscribed = [
                one
                for one in target["info"].get("subscriptions", [])
                if one["topic"] == topic["topic"]
            ]
            if target is me or not subscribed:
                continue
            urgent = topic["event"] in ("blocker", "decision") or (
                topic["event"] == "release" and subscribed[0].get("awaitRelease")
            )
            message = {"id": self.draw(), "timestamp": self.now, "topic": topic}
            message |= {"content": {"text": topic["text"]}}
            if urgent:
                message |= {"delivery": "steer"}
            else:
                thread = f"topic:{topic['topic']}"
                message |= {"delivery": "queue", "queueMode": "replace", "threadId": thread}
            found.append((target["info"]["id"], message))
        return found

    # -- send

    def send(self, conn: str, to: str, message: Info) -> None:
        me = self.of(conn)
        if me is None:
            return
        self.touch(me, False)
        targets = self.find(to)
        if len(targets) == 1:
            self.touch(me, True)
            target_id = targets[0]["info"]["id"]
            receipt = self.send_to(me, target_id, identity(me["info"]), message)
            kind = "delivery_failed"
            if receipt["accepted"]:
                kind = "delivery_queued" if receipt.get("queued") else "delivered"
            self.answer(me, kind, message["id"], receipt.get("reason"))
        elif targets:
            reason = f'Multiple sessions named "{to}" are connected. Use the session ID instead.'
            self.answer(me, "delivery_failed", message["id"], reason)
        else:
            self.answer(me, "delivery_failed", message["id"], "Session not found")

    def answer(self, session: Info, kind: str, message_id: str, reason: str | None) -> None:
        frame = {"type": kind, "messageId": message_id}
        self.write(session, frame if reason is None else {**frame, "reason": reason})

    def find(self, to: str) -> list[Info]:
        if to in self.sessions:
            return [self.sessions[to]]
        everybody = self.sessions.values()
        return [one for one in everybody if one["info"].get("name", "\0").lower() == to.lower()]

    def send_to(self, me: Info, to: str, sender: Info, message: Info) -> Info:
        target = self.sessions[to]
        status = target["info"].get("status", "")
        idle = status == "idle" or status.startswith("idle ")
        accepts = target["info"].get("acceptsAsks") is not False
        replace = message.get("queueMode") == "replace"
        if replace and (message.get("expectsReply") or (idle and accepts)):
            key = (me["info"]["id"], to, message["threadId"])
            began = self.staged.get(key, {"began": self.now})["began"]
            over = began < self.now and self.now - began >= DELAY
            due = self.now if over else self.now + DELAY
            entry = {"sender": sender, "message": message, "due": due, "began": began}
            self.staged[key] = entry
            reason = "Queued for replace-mode delivery"
            head = {"id": message["id"], "accepted": True, "delivered": False}
            return {**head, "queued": True, "reason": reason}
        self.deliver(target, sender, message)
        return {"id": message["id"], "accepted": True, "delivered": True}

    def deliver(self, target: Info, sender: Info, message: Info) -> None:
        self.touch(target, True)
        shown = compact(message) if target["topicFrames"] else message
        self.write(target, {"type": "message", "from": sender, "message": shown})

    def wait(self, ms: int) -> None:
        self.now += ms
        for key, entry in sorted(self.staged.items(), key=lambda item: item[1]["due"]):
            if entry["due"] <= self.now:
                del self.staged[key]
                self.deliver(self.sessions[key[1]], entry["sender"], entry["message"])


def identity(info: Info) -> Info:
    return {name: info[name] for name in info if name not in ("topics", "subscriptions")}


def compact(message: Info) -> Info:
    if "topic" not in message:
        return message
    topic = {name: value for name, value in message["topic"].items() if name != "text"}
    return {**{name: message[name] for name in message if name != "threadId"}, "topic": topic}


def snapshot(request: str, infos: list[Info], stream: bool) -> list[Info]:
    head = {"type": "sessions", "requestId": request}
    if not stream:
        return [{**head, "sessions": [identity(info) for info in infos]}]
    frames = []
    for info in infos:
        lists = [name for name in ("topics", "subscriptions") if name in info]
        rows = [{**identity(info), **{name: [] for name in lists}}]
        rows += [{"id": info["id"], name: [item]} for name in lists for item in info[name]]
        frames += [{**head, "sessions": [row], "more": True} for row in rows]
    return [*frames, {**head, "sessions": [], "more": False}]
