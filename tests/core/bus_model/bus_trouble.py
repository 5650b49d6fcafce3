"""The trouble that a hub has with its files, as rules of a state machine."""

from __future__ import annotations

from bus_scene import Scene
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

KINDS = st.sampled_from(["keep", "read", "ask", "unask"])


class Trouble(RuleBasedStateMachine):
    """Answers are late, and files fail. Subclasses have a scene, and :meth:`look`."""

    scene: Scene

    def look(self) -> None:
        """Take note of what was said."""
        raise NotImplementedError

    @rule(kind=KINDS)
    def hold(self, kind: str) -> None:
        self.scene.held.add(kind)

    @rule(kind=KINDS)
    def let_go(self, kind: str) -> None:
        self.scene.let_go(kind)
        self.look()

    @rule(kind=st.sampled_from(["keep", "read", "ask"]))
    def fail(self, kind: str) -> None:
        self.scene.failing ^= {kind}
