"""A small text grammar: ``[a|b]`` alternatives, ``{slot}`` values and ``@macro`` snippets."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_INNERMOST = re.compile(r"\[([^\[\]]*)\]")
_MACRO = re.compile(r"@([a-z]+)")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
_SENTENCE_START = re.compile(r"(?:^|(?<=[.!?] )|(?<=\n)|(?<=[.!?] \"))([a-z])")

MACROS: dict[str, str] = {
    "open": (
        "[One day|One [sunny|rainy|cold|windy|warm|quiet|bright|foggy] "
        "[morning|afternoon|evening|day]|On {day}|On {day} [morning|afternoon|evening]"
        "|Early [in the morning|one morning]|[Last|One] {season}|Late in {month}|In {month}"
        "|After [lunch|breakfast|school]|A long time ago|Not long ago|Yesterday|One day in {season}"
        "|On the first day of {month}]"
    ),
    "then": (
        "[Then|After that|A little later|Soon|Next|After a while|A moment later|In the end"
        "|Some minutes later|Before long|At last]"
    ),
    "went": "[went|walked|ran|hurried|wandered|set off]",
    "looked": "[looked|searched|peeked|checked]",
    "said": "[said|called|answered|replied|whispered|cried]",
    "kind": "[kind|brave|clever|curious|cheerful|quiet|careful|patient|lively|gentle|honest|busy]",
    "nice": "[nice|lovely|fine|wonderful|pretty|beautiful|splendid]",
    "very": "[very |so |really |quite |a little ||]",
    "smile": "[smiled|laughed|nodded|grinned|waved|clapped|cheered|sang|jumped for joy]",
    "weather": (
        "[The sun was shining|It was raining|The wind was blowing|Snow was falling|The sky was grey"
        "|The sky was clear and blue|It was warm|It was cold outside|A soft rain was falling"
        "|The clouds were dark|The air smelled of [rain|flowers|grass|smoke|bread]"
        "|The leaves were [green|yellow|red|wet]|Fog lay over the [fields|river|hills|town]]"
    ),
    "sense": (
        "[A bird sang in a tree|The [grass|road|path|air] was [wet|dry|cold|warm]"
        "|Somewhere a [dog barked|bell rang|door closed|cow mooed|child laughed]"
        "|The [light|shadows|smoke|clouds] moved slowly|Nobody else was there"
        "|It was very quiet|The path was long and [narrow|steep|muddy|dusty]"
        "|Far away a [train|boat|storm|dog] could be heard|A [bee|butterfly|leaf] flew past"
        "|The [old|tall|green] trees moved in the wind]"
    ),
    "yes": (
        "[Yes, of course|Of course|Yes, please|Gladly|That is a good idea|What a good idea"
        "|All right|Very well|Yes, let us do it|Sure]"
    ),
    "thanks": (
        "[Thank you|Thank you very much|Thanks|Many thanks|How kind of you|You are a good friend"
        "|I will never forget this|That was a great help]"
    ),
    "oh": "[Oh no|Oh dear|Goodness|What a pity|How strange|Look|Hello|Well|Hm]",
    "moral": (
        "[It is good to have a friend|Every day brings something new|Small steps lead to big things"
        "|Sharing makes everyone happy|It is never too late to say sorry|Patience is worth the wait"
        "|Asking for help is not a weakness|Even a small gift can bring great joy"
        "|A problem is easier when two people work on it|Kind words cost nothing"
        "|The best things take time|Those who look closely find the most|Truth is the best way"
        "|Home is where your friends are]"
    ),
    "evening": (
        "[In the evening|That night|When the sun went down|When it was dark|At supper|Before bed"
        "|At the end of the day|When the stars came out|Late in the evening]"
    ),
}


class Slots(dict[str, str]):
    """Values of slots. `slots["Obj"]` is `slots["obj"]` with a capital first letter."""

    def __missing__(self, key: str) -> str:
        """Return the capitalised value for ``Key``."""
        value = self[key[0].lower() + key[1:]] if key[0].isupper() else None
        if value is None:
            raise KeyError(key)
        return value[:1].upper() + value[1:]


def expand(template: str, rng: random.Random, slots: Mapping[str, str]) -> str:
    """Return one random text of the template; the same rng state gives the same text."""
    text = template
    while "@" in text:
        text = _MACRO.sub(lambda m: MACROS[m[1]], text)
    while "[" in text:
        text = _INNERMOST.sub(lambda m: rng.choice(m[1].split("|")), text)
    text = text.format_map(slots)
    return _ARTICLE.sub(r"\1n ", re.sub(r" {2,}", " ", text).strip())


def sentences(text: str) -> str:
    """Return the text with every sentence starting in upper case."""
    return _SENTENCE_START.sub(lambda m: m[0].upper(), text)
