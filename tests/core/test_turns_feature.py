"""The feature ``turns``: present without being guarded, and making room for who shows."""

from __future__ import annotations

import pytest
from core_scene import Scene, one

from intercom.core import effects as fx
from intercom.messages import Fault, Register, Welcome
from intercom.records import Receiver


def claim(
    scene: Scene, *features: str, token: str = "t", takeover: bool = False
) -> list[fx.Effect]:
    register = Register("r", "ada", features, token=token, takeover=takeover)
    return scene.admit(scene.say(scene.connect(), register))


def present() -> tuple[Scene, int]:
    """A scene in which ada is only present."""
    scene = Scene()
    scene.tokens["ada"] = "t"
    return scene, scene.join("ada", "turns", token="t")


def test_no_locks_are_held_for_one_that_takes_them_itself() -> None:
    scene, _first = present()
    scene.join("bob", "receipts")
    assert scene.core.receivers(scene.now + 60) == [Receiver("bob", 2)]


def test_who_would_show_what_comes_replaces_one_that_is_only_present() -> None:
    scene, first = present()
    effects = claim(scene, "cursor")
    assert one(effects, fx.Answer, first, Fault).code == "TAKEN_OVER"
    assert one(effects, fx.Answer, first + 1, Welcome)


@pytest.mark.parametrize(
    ("features", "token"), [(("turns",), "t"), (("cursor",), "wrong"), ((), "wrong")]
)
def test_nobody_else_does(features: tuple[str, ...], token: str) -> None:
    """Neither another of its kind, nor one that has not the token."""
    scene, first = present()
    effects = claim(scene, *features, token=token)
    code = "UNAUTHORIZED" if token == "wrong" else "SESSION_COLLISION"
    assert one(effects, fx.Answer, first + 1, Fault).code == code
    assert scene.core.claim_of(first) == "ada"


def test_its_successor_takes_over_by_asking_for_that() -> None:
    scene, first = present()
    effects = claim(scene, "turns", takeover=True)
    assert one(effects, fx.Answer, first, Fault).code == "TAKEN_OVER"
