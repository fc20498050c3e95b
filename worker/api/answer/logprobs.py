"""The engine's logprobs in OpenAI's forms: arrays for completions, an entry a token for chats."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence

import msgspec

from worker.engine.output import TokenLogprob


class SpelledIds(dict[int, bytes]):
    """Token id -> vLLM's name of it, for clients that want no text."""

    def __missing__(self, token: int) -> bytes:
        """`token_id:7`"""
        return b"token_id:%d" % token


class Logprobs(msgspec.Struct):
    """OpenAI's parallel arrays, one entry a token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class LogprobArrays:
    """Collects a choice's arrays token by token; `take` empties them for one event."""

    def __init__(self, piece: Callable[[int], bytes], *, strip_first: bool = False) -> None:
        """strip_first: the first token begins with a space that the tokenizer put there."""
        self._piece = piece
        self._strip = strip_first
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._arrays = Logprobs([], [], [], [])

    def add(self, token: int, score: TokenLogprob | None) -> None:
        """Append a token; without a score (the first of a prompt) both entries are null."""
        piece = self._piece(token)
        if self._strip:
            piece, self._strip = piece.removeprefix(b" "), False
        arrays = self._arrays
        arrays.tokens.append(token_text(piece))
        arrays.text_offset.append(self._offset)
        self._offset += len(self._decoder.decode(piece))
        arrays.token_logprobs.append(None if score is None else score.logprob)
        arrays.top_logprobs.append(None if score is None else self._top(score))

    def _top(self, score: TokenLogprob) -> dict[str, float]:
        """Likeliest first; of several tokens with the same text the likelier counts."""
        top: dict[str, float] = {}
        for token, logprob in (*score.top, (score.token, score.logprob)):
            top.setdefault(token_text(self._piece(token)), logprob)
        return top

    def take(self) -> Logprobs | None:
        """What was added since the last call; None where there is nothing."""
        arrays, self._arrays = self._arrays, Logprobs([], [], [], [])
        return arrays if arrays.tokens else None


def concatenate(parts: Sequence[Logprobs]) -> Logprobs | None:
    """The arrays of several events as one; None where there are none."""
    if not parts:
        return None
    whole = Logprobs([], [], [], [])
    for part in parts:
        whole.tokens += part.tokens
        whole.token_logprobs += part.token_logprobs
        whole.top_logprobs += part.top_logprobs
        whole.text_offset += part.text_offset
    return whole


class TopToken(msgspec.Struct):
    """One of the likeliest tokens; its bytes are exact where its text is a part of a character."""

    id: int
    token: str
    bytes: list[int]
    logprob: float


class TokenScore(TopToken):
    """A sampled token."""

    top_logprobs: list[TopToken]


def token_score(score: TokenLogprob, pieces: Sequence[bytes] | Mapping[int, bytes]) -> TokenScore:
    """pieces: token id -> bytes

    The sampled token is among its alternatives where there are any: what is held to a form is not
    always one of the likeliest, and stands in the last one's place then.
    """

    def spelling(token: int) -> tuple[int, str, list[int]]:
        return token, token_text(pieces[token]), list(pieces[token])

    pairs = score.top
    if pairs and all(token != score.token for token, _ in pairs):
        pairs = (*pairs[:-1], (score.token, score.logprob))
    top = [TopToken(*spelling(token), logprob) for token, logprob in pairs]
    return TokenScore(*spelling(score.token), score.logprob, top)


def token_text(piece: bytes) -> str:
    """A token as OpenAI writes it: text, or `bytes:\\xe2\\x80` for a part of a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


class PromptToken(msgspec.Struct):
    """A token of a prompt, or one that could have stood there, in vLLM's form."""

    logprob: float
    rank: int
    decoded_token: str


# One entry for each prompt token: token id -> its score, with the likeliest of its place; null for
# the first one, which nothing comes before.
PromptLogprobs = list[dict[str, PromptToken] | None]


def prompt_logprobs(
    scores: Sequence[TokenLogprob], pieces: Sequence[bytes] | Mapping[int, bytes], top: int
) -> PromptLogprobs:
    """scores: of all tokens but the first; top: alternatives of each"""

    def entry(score: TokenLogprob) -> dict[str, PromptToken]:
        ranked = [(score.token, score.logprob, score.rank)]
        ranked += [(*pair, rank) for rank, pair in enumerate(score.top[:top], start=1)]
        return {
            str(token): PromptToken(logprob, rank, pieces[token].decode(errors="replace"))
            for token, logprob, rank in ranked
        }

    return [None, *map(entry, scores)]


def mean_logprob(scores: Sequence[float]) -> float:
    """What `best_of` ranks by."""
    return sum(scores) / len(scores) if scores else 0.0
