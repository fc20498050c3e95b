"""What nobody asked for is not entered."""

from __future__ import annotations

from checks.turns.run import record

# Tools, who continues an answer elsewhere, packed bodies, keys' quotas, the web UI, penalties and
# bans, turns that a template does not take.
_FEATURES = frozenset({
    "api/intake/chat/tools.py", "api/intake/delivery.py", "api/intake/packed_body.py",
    "requests/quota.py", "api/page/page.py", "llama/sampling/edits.py", "chat/turns.py",
})  # fmt: skip


def test_a_plain_chat_enters_no_feature() -> None:
    """A streamed chat runs nothing of a feature that it does not use."""
    files = {call.function.file for call in record()}
    assert "api/intake/chat/chat_request.py" in files
    assert files.isdisjoint(_FEATURES)
