"""Texts to tokenise: 500 in 20 scripts, mixed, and of what tokenisers stumble over.

They are the same on each Python: ranges of letters stand here instead of being asked of Unicode's
tables, and draws use `Random.random` alone, whose sequence Python promises to keep.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

SEED = 37
PER_SCRIPT = 20
COUNT = 500

_Item = TypeVar("_Item")

# script -> first and last letters of ranges without a gap, and a sentence: "The water in the river
# is cold, and the child counts 7 stones.", or what people say who write so.
SCRIPTS: dict[str, tuple[tuple[str, ...], str]] = {
    "Latin": (("az", "AZ", "ßö", "øÿ"),
              "Das Wasser im Fluß ist kühl, où l'enfant compte 7 pierres."),
    "Cyrillic": (("ая", "АЯ", "ѐџ"), "Вода в реке холодная, и ребёнок считает 7 камней."),
    "Greek": (("αω", "ΑΡ", "άώ"), "Το νερό στο ποτάμι είναι κρύο και το παιδί μετρά 7 πέτρες."),
    "Armenian": (("աֆ", "ԱՖ"), "Գետի ջուրը սառն է, և երեխան հաշվում է 7 քար։"),
    "Georgian": (("აჰ",), "მდინარეში წყალი ცივია და ბავშვი 7 ქვას ითვლის."),
    "Hebrew": (("את", "ְֹ"), "המים בנהר קרים, והילד סופר 7 אבנים."),
    "Arabic": (("اغ", "في", "ًْ", "٠٩"), "الماء في النهر بارد، والطفل يعد ٧ أحجار."),
    "Devanagari": (("अह", "ाौ", "०९"), "नदी का पानी ठंडा है, और बच्चा ७ पत्थर गिनता है।"),
    "Bengali": (("কন", "০৯"), "নদীর জল ঠান্ডা, আর শিশুটি ৭টি পাথর গোনে।"),
    "Tamil": (("மஹ", "௦௯"), "ஆற்று நீர் குளிர்ச்சியாக உள்ளது, குழந்தை 7 கற்களை எண்ணுகிறது."),
    "Telugu": (("కన", "౦౯"), "నది నీరు చల్లగా ఉంది, పిల్లవాడు 7 రాళ్లు లెక్కపెడతాడు."),
    "Thai": (("กฮ", "ะฺ", "๐๙"), "น้ำในแม่น้ำเย็น และเด็กนับหิน ๗ ก้อน"),
    "Khmer": (("កអ", "ាៅ"), "ទឹកទន្លេត្រជាក់ ហើយក្មេងរាប់ថ្ម ៧ ដុំ។"),
    "Ethiopic": (("ሀሆ", "ለሎ", "መሞ"), "የወንዙ ውሃ ቀዝቃዛ ነው፣ ልጁም 7 ድንጋይ ይቆጥራል።"),
    "Tibetan": (("ཀཇ", "ཏད"), "ཆུ་གྲང་མོ་རེད། ཕྲུ་གུས་རྡོ་ ༧ རྩི།"),
    "Cherokee": (("ᎠᏯ",), "ᎠᎹ ᎤᏴᏝ, ᎠᏲᎵ 7 ᏅᏯ."),
    "Hangul": (("가힣", "ㄱㅎ"), "강물은 차갑고 아이는 돌 7개를 센다."),
    "Hiragana": (("ぁゖ",), "かわのみずはつめたく、こどもはいしを7つかぞえる。"),
    "Katakana": (("ァヺ", "ｱﾝ"), "カワノミズハツメタク、コドモハイシヲ７ツカゾエル。"),
    "Han": (("一龥",), "河里的水很冷，孩子数着七块石头。"),
}  # fmt: skip

SENTENCES = (
    "The water in the river is cold, and the child counts 7 stones.",
    "It's 3.50 o'clock; they've said we'll be late, I'd guess — don't you?",
    "ALL CAPS, then camelCaseWords and snake_case_words, then x2, v1.0.3 and 1,234,567.89!",
    "naïve café, coöperate; the ﬁrst ﬂight, ½ of 10⁻³ Å, № 5, ™ and ©.",
    "e\u0301 is é, and A\u030a is Å: the same to a reader.",
    "See https://example.org/a/b?c=d&e=%20f#g or write to someone@example.org.",
)
# Beginnings to go on with.
PROMPTS = (
    "Once upon a time, in a village by the sea, there lived",
    "The capital of France is Paris. The capital of Italy is",
    "Ingredients: flour, water, salt. First,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "Das Wasser im Fluss ist kalt, und das Kind",
)
CODE = (
    "def area(r: float) -> float:\n    return 3.14159 * r ** 2\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];  // dot\n}\n",
    '{"name": "x", "values": [1, -2.5e-3, null, true], "nested": {"a": {}}}',
    "<table>\n  <tr><td>1</td><td>&nbsp;</td></tr>\n</table>",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x <> 'y' GROUP BY 1;",
    "#!/bin/sh\nset -eu\nls -la | awk '{ print $5 }' >>out.txt 2>&1\n",
    "let x = y?.z ?? !w; x ||= `a${b}`; // => ...",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n- [ ] item\n\n```\ncode\n```",
    "\\begin{equation} \\sum_{i=1}^{n} x_i^2 \\leq \\alpha \\end{equation}",
    "0x1F 0b1010 1e-9 1_000_000 NaN -inf ++i --j i**2 a//b a<<2 !== === =>",
)
EMOJI = (
    "😀", "😂", "🥳", "🤖", "👍", "👍🏽", "❤\ufe0f", "✨", "🎉", "🚀", "🌍", "🏳\ufe0f\u200d🌈",
    "👨\u200d👩\u200d👧\u200d👦", "🇺🇳", "🇫🇷", "☕", "♞", "⚠\ufe0f", "➡\ufe0f", "𝔘", "𝄞", "🀄",
    "🂡", "⠿", "∮", "≤", "√", "∞",
)  # fmt: skip
BLANKS = (
    " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\u00a0", "\u2003", "\u3000",
    "\u2028", "\u200b", " " * 8, " " * 17, "\n" * 7,
)  # fmt: skip
CONTROLS = (
    *map(chr, (0, 1, 7, 8, 11, 12, 27, 31, 127, 0x85, 0xAD, 0x200D, 0x200E, 0x202E, 0xFEFF)),
    *map(chr, (0xFFFD, 0xFFFE, 0xE000, 0x10FFFF, 0x1D173)),
)
MARKS = (". ", ", ", "! ", "? ", ": ", "; ", " - ", " (", ") ", '" ', "… ", "/")


class Draws:
    """Choices from `Random.random` alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, count: int) -> int:
        """A whole number from 0 up to, not including, `count`."""
        return int(self._random() * count)

    def one(self, items: Sequence[_Item]) -> _Item:
        """One of the items."""
        return items[self.below(len(items))]

    def letter(self, ranges: Sequence[str]) -> str:
        """A letter of one of the ranges."""
        first, last = self.one(ranges)
        return chr(ord(first) + self.below(ord(last) - ord(first) + 1))

    def word(self, script: str) -> str:
        """One to seven letters of a script; now and then it has a capital, or is a number."""
        if not self.below(12):
            return str(self.below(10 ** (1 + self.below(6))))
        ranges, _ = SCRIPTS[script]
        return "".join(self.letter(ranges) for _ in range(1 + self.below(7)))

    def text(self, scripts: Sequence[str], glue: Sequence[str] = (" ",)) -> str:
        """Two to six words, with something between them and a mark now and then."""
        parts: list[str] = []
        for _ in range(2 + self.below(5)):
            parts.append(self.word(self.one(scripts)))
            parts.append(self.one(glue) if self.below(4) else self.one(MARKS))
        return "".join(parts[: -1 if self.below(3) else None])


def texts() -> list[str]:
    """All texts, always the same: COUNT of them."""
    draws = Draws(SEED)
    found: list[str] = []
    for script, (_, sentence) in SCRIPTS.items():
        found.append(sentence)
        found += [draws.text([script]) for _ in range(PER_SCRIPT - 1)]
    names = list(SCRIPTS)
    found += SENTENCES
    found += CODE
    found += [draws.text(names) for _ in range(24)]
    found += [draws.text(["Latin", "Han", "Hangul"], ("", " ")) for _ in range(10)]
    found += ["".join(draws.one(EMOJI) for _ in range(1 + draws.below(6))) for _ in range(10)]
    found += [draws.text(["Latin"], EMOJI) for _ in range(10)]
    found += [draws.text(["Latin"], BLANKS) for _ in range(12)]
    found += ["".join(draws.one(BLANKS) for _ in range(2 + draws.below(4))) for _ in range(8)]
    found += [draws.text(["Latin", "Cyrillic"], CONTROLS) for _ in range(10)]
    return found
