"""A worker as `worker decide` sees it: POST /v1/systemone."""

from __future__ import annotations

import http.client
from typing import Any

import msgspec

from worker.cli.address import Address
from worker.cli.chat_client import ChatError, connect, request
from worker.errors import WorkerError

_PATH = "/v1/systemone"


class DecideError(WorkerError, code="DECIDE_FAILED"):
    """The worker refused the questions."""


class _Calibration(msgspec.Struct):
    temperature: float


class _Diagnostics(msgspec.Struct):
    label_mass: float
    orders: int
    mode: str
    calibration: _Calibration | None = None


class DecidedQuestion(msgspec.Struct):
    """One of /v1/systemone, of any type."""

    noul: float | None = None
    score: float | None = None
    confidence: float | None = None
    legend: dict[str, Any] | None = None
    probabilities: dict[str, float] | None = None
    diagnostics: _Diagnostics | None = None

    @property
    def rows(self) -> list[tuple[str, float]]:
        """Options with their probabilities."""
        if self.noul is not None:
            return [("true", self.noul), ("false", 1.0 - self.noul)]
        legend = self.legend or {}
        found = self.probabilities or {}
        return [(str(legend.get(name, name)), share) for name, share in found.items()]

    @property
    def note(self) -> str:
        """How sure the answer is, and how it was read."""
        parts: list[str] = []
        if self.score is not None:
            parts.append(f"score {self.score:.2f}")
        if self.confidence is not None:
            parts.append(f"confidence {self.confidence:.2f}")
        if (told := self.diagnostics) is not None:
            parts.append(f"label mass {told.label_mass:.2f}")
            parts.append(f"{told.mode}, {told.orders} order{'s' if told.orders > 1 else ''}")
            known = told.calibration
            parts.append(f"temperature {known.temperature:.2f}" if known else "not calibrated")
        return ", ".join(parts)


class DecidedQuestions(msgspec.Struct):
    answers: dict[str, DecidedQuestion]


class _Detail(msgspec.Struct):
    msg: str


class _Refused(msgspec.Struct):
    detail: list[_Detail]


class _Error(msgspec.Struct):
    message: str


class _RefusedElsewhere(msgspec.Struct):
    error: _Error


def ask(
    address: Address, state: str, questions: dict[str, dict[str, Any]]
) -> tuple[msgspec.Raw, DecidedQuestions]:
    """The answer as it came, and what is in it. Raises DecideError."""
    body = {"model": "", "state": state, "questions": questions}
    try:
        with connect(address) as connection:
            response = request(connection, "POST", _PATH, address, body)
            data = response.read()
            if response.status != http.client.OK:
                raise DecideError(_reason(data, response.status))
            return msgspec.Raw(data), msgspec.json.decode(data, type=DecidedQuestions)
    except ChatError as error:
        raise DecideError(error.message, hint=error.hint) from None


def _reason(data: bytes, status: int) -> str:
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "detail" in found:
            return msgspec.json.decode(data, type=_Refused).detail[0].msg
        return msgspec.json.decode(data, type=_RefusedElsewhere).error.message
    except (msgspec.MsgspecError, LookupError):
        return f"The server answers {status} to {_PATH}."
