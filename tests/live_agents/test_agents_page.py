"""The page of agents says what was tried: the same lines, the same versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_hosts import HOSTS, Host

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text("utf-8")


def section(title: str) -> str:
    """What the page says of a host."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_the_page_has_the_lines_and_versions_that_were_tried(host: Host) -> None:
    told = section(host.program.title)
    assert "\n".join((*host.lines, *host.skill_lines)) in told
    for name, text in host.files.items():
        assert text in told
        assert f"~/{name}" in told
    (row,) = (row for row in PAGE.splitlines() if row.startswith(f"| {host.program.title} |"))
    assert f"| {host.program.version} |" in row
    assert ("INTERCOM_SESSION" in row) is host.splits
    assert row.split("|")[3].strip().startswith("yes") is host.instructs
