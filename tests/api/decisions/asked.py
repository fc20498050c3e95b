"""Bodies of both APIs, read and answered without an engine."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from worker.api.decisions.openai_schemas import DecisionRequest
from worker.api.decisions.question import AnswerReading, Decision
from worker.api.decisions.request_body import DecisionBody, read_decision
from worker.api.decisions.systemone_schemas import SystemOneRequest
from worker.api.intake.media_inputs import MediaInputs
from worker.model.calibration import PROMPT_VERSION

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64)).decode()
PICTURE = f"data:image/png;base64,{PNG}"
JSON = "application/json"


class _Addresses:
    def allows(self, _address: str) -> bool:
        return False


class Reader:
    """Sees pictures; their bytes are their digest."""

    ready = SimpleNamespace(kinds=("image",))

    def addresses(self) -> Any:
        return _Addresses()

    def digest(self, data: bytes) -> bytes:
        return data


def seeing() -> MediaInputs:
    """Of a model that sees."""
    return MediaInputs(cast("Any", Reader()))


def body_of(
    body: Any, shape: type[DecisionRequest | SystemOneRequest], content_type: str = JSON
) -> DecisionBody:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_decision(bytearray(data), content_type, shape)


def openai_decision(body: Any, media: MediaInputs | None = None) -> Decision:
    """What a body of OpenAI's asks."""
    given = body_of(body, DecisionRequest)
    assert isinstance(given.asked, DecisionRequest)
    return given.decision(media or MediaInputs())


def system_one_decision(
    body: Any, media: MediaInputs | None = None, content_type: str = JSON
) -> Decision:
    """What a body of System One asks."""
    given = body_of(body, SystemOneRequest, content_type)
    assert isinstance(given.asked, SystemOneRequest)
    return given.decision(media or MediaInputs())


def reading(*probabilities: float, temperature: float | None = None) -> AnswerReading:
    return AnswerReading(probabilities, 0.75, 2, 1, "letters", temperature)


DIAGNOSTICS = {
    "label_mass": 0.75,
    "prompt_version": PROMPT_VERSION,
    "orders": 2,
    "flips": 1,
    "mode": "letters",
    "calibration": None,
}


def as_sent(reply: Any) -> Any:
    """The answer's JSON, whose fields keep their order."""
    return json.loads(msgspec.json.encode(reply))
