"""Places in a prompt's text as places in its tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from worker.chat.conversation import Conversation
from worker.lifecycle.loaded import Loaded


def checkpoints_of(
    conversation: Conversation, tokens: Sequence[int], loaded: Loaded
) -> tuple[int, ...]:
    """Where other prompts are likely to leave this one; see `Prompt.checkpoints`.

    tokens: of the whole prompt. Only a model whose state cannot be cut anywhere needs them.
    """
    found = token_places(conversation.text, conversation.branches(), tokens, loaded)
    return tuple(sorted(place for place in set(found or ()) if 0 < place < len(tokens)))


def token_places(
    text: str, places: Iterable[int], tokens: Sequence[int], loaded: Loaded
) -> list[int] | None:
    """How many of the first tokens lie whole before each place; None where that is unknown.

    text    what the tokens were made from; `places` count its characters

    The bytes of the tokens are counted, without white space: tokenizers put a space before the text
    and drop line ends behind control tokens. A tokenizer that changes other characters too gives
    None. A token of white space right before a place does not count.
    """
    if min(tokens, default=0) < 0:
        return None  # a picture is no text
    spelled = loaded.backend.vocab.spelled
    pieces = [_dense(spelled[token]) for token in tokens]
    whole = b"".join(pieces)
    if not whole.endswith(_dense(text.encode())):  # BOS stands before it
        return None
    ends = list(accumulate(map(len, pieces)))

    def tokens_before(place: int) -> int:
        stop = len(whole) - len(_dense(text[place:].encode()))
        count = bisect_left(ends, stop)
        return count + 1 if count < len(ends) and ends[count] == stop else count

    return [tokens_before(place) for place in places]


def _dense(data: bytes) -> bytes:
    return b"".join(data.split())
