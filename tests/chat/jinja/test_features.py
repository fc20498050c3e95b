"""Small templates, one for each thing that Jinja has, beside what transformers makes of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cases import for_each
from worker.chat.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "yes"}]
# [template, text], made by apply_chat_template of transformers 5.24.0 with Jinja 3.1.6.
FEATURES = json.loads((Path(__file__).parent / "features.json").read_text())


@for_each(("source", "text"), FEATURES)
def test_as_transformers(source: str, text: str) -> None:
    """What transformers runs is run, with the same text."""
    template = ChatTemplate(source, bos="", eos="")
    assert template.render(MESSAGES, add_generation_prompt=False, tools=None) == text
