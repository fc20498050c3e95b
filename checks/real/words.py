"""Texts on which WordPiece tokenisers differ: scripts, accents, marks, spaces and long words."""

from __future__ import annotations

_TEXTS = (
    "Plain English, as most texts are: it's 3.5 % better (or so).",
    "Crème brûlée à la carte; Ångström, Žižek, İstanbul, ÇA VA?",
    "cafe\u0301 na\u0131ve \u017fhort \u212a \ufb01sh \u00b2 \u2163",
    "दिल्ली भारत की राजधानी है और यहाँ बहुत लोग रहते हैं।",
    "ঢাকা বাংলাদেশের রাজধানী। தமிழ் ஒரு மொழி. ไทยเป็นภาษา",
    "서울은 대한민국의 수도이며 많은 사람들이 살고 있다.",
    "東京は日本の首都です。カタカナ、ガギグゲゴ、ﾊﾝｶｸ。",
    "北京是中国的首都，有很多人。㐀 \U00020000 豈",
    "القاهرة عاصمة مصر، وَالكِتَابُ. תַּנַ״ךְ שלום",
    "Ελλάδα ΣΊΣΥΦΟΣ Σ. Москва Ёлка Й é",
    "Tiếng Việt có nhiều dấu: ữ ệ ặ",
    "emoji 😀👩\u200d🔬🏳\ufe0f\u200d🌈 x\u0336 z\u0351\u0352",
    "soft\u00adhyphen zero\u200bwidth bom\ufeff nbsp\u00a0thin\u2009em\u3000line\u2028end",
    "x\x85x\x0by",
    "$5 + €3 = 5·3 ≠ 7 ~ 8 ^ 2 `x` |y| <z> ¡hola! ¿qué? «sí» „ja“ … — ½",
    "[MASK] [CLS]a[SEP] [unused1] [mask]",
    "a" * 100 + " " + "b" * 101 + " " + "한" * 34 + " " + "é" * 101 + " end",
    "https://example.org/a_b?c=d&e=%20#f user@example.org C++ #hash @at",
    "\n\t line\r\nbreaks \n\n and\ttabs \x00\x07",
    "",
)


def words() -> list[str]:
    """Each of them, and all of them in one."""
    return [*_TEXTS, " ".join(_TEXTS)]
