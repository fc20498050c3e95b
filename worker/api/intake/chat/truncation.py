"""Places in a prompt: where other prompts leave it, and which old turns outgrow the context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.api.intake.prompts import TextPrompt, Truncated, rendered_prompt
from worker.chat.conversation import Conversation


def checkpoints_of(
    conversation: Conversation, tokens: Sequence[int], facts: ModelFacts
) -> tuple[int, ...]:
    """Where other prompts are likely to leave this one; see `Prompt.checkpoints`.

    tokens: of the whole prompt. Only a model whose state cannot be cut anywhere needs them.
    """
    found = token_places(conversation.text, conversation.branches(), tokens, facts)
    return tuple(sorted(place for place in set(found or ()) if 0 < place < len(tokens)))


def token_places(
    text: str, places: Iterable[int], tokens: Sequence[int], facts: ModelFacts
) -> list[int] | None:
    """How many of the first tokens lie whole before each place; None where that is unknown.

    text    what the tokens were made from; `places` count its characters

    The bytes of the tokens are counted, without white space: tokenizers put a space before the text
    and drop line ends behind control tokens. A tokenizer that changes other characters too gives
    None. A token of white space right before a place does not count.
    """
    if min(tokens, default=0) < 0:
        return None  # a picture is no text
    spelled = facts.vocab.spelled
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


def truncate(
    conversation: Conversation,
    max_tokens: int | None,
    facts: ModelFacts,
    param: str,
    media: MediaInputs,
) -> tuple[Conversation, TextPrompt, Truncated | None]:
    """The conversation without as many whole old turns as the context asks for, and its prompt.

    max_tokens  that the answer may have; None: until the context ends
    param       the client's field that holds the messages, to name in errors

    The system part and the last turn always stay, so the prompt may still be too long. An answer
    gets the room that `max_tokens` asks for, at most half of the context, or a quarter where it
    does not say. The template is rendered four times at most. Raises RequestError.
    """
    max_length = facts.max_length
    room = min(max_length // 4 if max_tokens is None else max_tokens, max_length // 2)
    limit = max_length - room
    whole = rendered_prompt(conversation.text, facts, param, media, must_fit=False)
    num_old = conversation.num_old_turns
    if len(whole.tokens) <= limit or not num_old:
        return conversation, whole, None
    starts = token_places(conversation.text, conversation.user_starts, whole.tokens, facts)
    count = num_dropped(starts, len(whole.tokens), limit) if starts else num_old
    shorter = conversation.without(count)
    prompt = rendered_prompt(shorter.text, facts, param, media)
    if len(prompt.tokens) > limit and count < num_old:
        shorter = conversation.without(num_old)
        prompt = rendered_prompt(shorter.text, facts, param, media)
    messages = len(conversation.messages) - len(shorter.messages)
    return shorter, prompt, Truncated(messages, len(whole.tokens) - len(prompt.tokens))


def num_dropped(starts: Sequence[int], total: int, limit: int) -> int:
    """How many old turns to drop from a prompt of `total` tokens so that `limit` tokens hold it.

    starts  the token at which each turn begins, the last turn included

    What is dropped grows in steps: half of what the limit leaves beside the system part. So the
    following turns drop the same, and find their beginning in the cache, until that much is added.
    With a limit of 100, no system part and turns of 20 tokens a step is 50 tokens in whole turns:

        total    100 | 120  140 | 160  180  200 | 220  240 | 260 ...
        dropped    0 |  60   60 | 100  100  100 | 160  160 | 200 ...
    """
    if total <= limit:
        return 0
    step = max(1, (limit - starts[0]) // 2)
    least = -(-(total - limit) // step) * step
    freed = [start - starts[0] for start in starts[1:]]
    return min(bisect_left(freed, least) + 1, len(freed))
