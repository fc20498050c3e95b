"""The openai package sends a sound: whole, as text, streamed, translated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import openai

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
sound: Any = {"model": "m", "file": Path(sys.argv[2])}
create: Any = client.audio.transcriptions.create
whole = create(**sound).text
events = list(create(**sound, stream=True))
print(
    json.dumps(
        {
            "whole": whole,
            "text": create(**sound, response_format="text").strip(),
            "stream": "".join(each.delta for each in events[:-1]).strip(),
            "done": events[-1].text,
            "translation": isinstance(client.audio.translations.create(**sound).text, str),
        }
    )
)
