"""Stories told from the plots: a title, a text and questions that the text answers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from scripts.demo_model import words
from scripts.demo_model.grammar import Slots, expand, sentences
from scripts.demo_model.plot import INTERLUDES, PLOTS, Plot


@dataclass(frozen=True)
class Story:
    """A story with its words filled in, and questions and answers about it."""

    title: str
    about: str
    text: str
    questions: list[tuple[str, str]]


def person(rng: random.Random, key: str, taken: set[str]) -> Slots:
    """Draw a name not in ``taken`` with its pronouns, as slots key, keyhe, keyhis, keyhim."""
    girl = rng.random() < 0.5
    name = rng.choice([n for n in (words.GIRLS if girl else words.BOYS) if n not in taken])
    taken.add(name)
    he, his, him = ("she", "her", "her") if girl else ("he", "his", "him")
    return Slots({key: name, key + "he": he, key + "his": his, key + "him": him})


def cast(rng: random.Random) -> Slots:
    """Draw three people who can stay the same through several stories."""
    taken: set[str] = set()
    slots = Slots()
    for key in "abc":
        slots.update(person(rng, key, taken))
    return slots


def scene(rng: random.Random, people: Slots) -> Slots:
    """Draw everything but the people: things, places, animals, numbers, feelings."""
    slots = Slots(people)
    places = rng.sample(list(words.PLACES), 3)
    for i, place in enumerate(places, 1):
        slots[f"p{i}"] = place
        slots[f"at{i}"] = f"{words.PLACES[place]} the {place}"
    out = rng.choice(words.OUTDOORS)
    slots["out"], slots["atout"] = out, f"{words.PLACES[out]} the {out}"
    slots["obj"], slots["obj2"] = rng.sample(words.OBJECTS, 2)
    slots["colour"], slots["colour2"] = rng.sample(words.COLOURS, 2)
    slots["size"] = rng.choice(words.SIZES)
    slots["build"], slots["build2"] = rng.sample(words.BUILDS, 2)
    slots["spot1"], slots["spot2"], slots["spot3"] = rng.sample(words.SPOTS, 3)
    slots["x"], slots["y"] = rng.sample(words.TALE_ANIMALS, 2)
    slots["food"], slots["food2"] = rng.sample(words.FOODS, 2)
    slots["fruit"], slots["fruit2"] = rng.sample(words.FRUITS, 2)
    slots["glad"], slots["sad"] = rng.choice(words.GLAD), rng.choice(words.SAD)
    slots["job"] = rng.choice(list(words.JOBS))
    slots["day"], slots["month"] = rng.choice(words.DAYS), rng.choice(words.MONTHS)
    slots["season"] = rng.choice(words.SEASONS)
    few, more = rng.randint(2, 9), rng.randint(2, 9)
    slots["few"], slots["more"] = words.NUMBERS[few], words.NUMBERS[more]
    slots["sum"] = words.NUMBERS[few + more]
    total, part = rng.randint(11, 40), rng.randint(2, 10)
    slots["n"], slots["m"], slots["left"] = str(total), str(part), str(total - part)
    slots["plus"] = str(total + part)
    return slots


def title_case(text: str) -> str:
    """Return the text with every word but the smallest ones starting in upper case."""
    small = {"a", "an", "the", "in", "on", "at", "by", "and", "of", "to", "for", "from", "with"}
    parts = [w if w in small else w[:1].upper() + w[1:] for w in text.split(" ")]
    return " ".join([parts[0][:1].upper() + parts[0][1:], *parts[1:]])


def tell(rng: random.Random, plot: Plot, people: Slots) -> Story:
    """Write the story of a plot: some have interludes, half of them a second paragraph."""
    slots = scene(rng, people)
    parts: list[str] = []
    body = " ".join(plot.body)
    # An interlude must not bring in somebody whom the plot does not know.
    interludes = INTERLUDES if "{a}" in body else INTERLUDES[:1]
    interludes = tuple(rng.sample(interludes, len(interludes)))
    letter = body.startswith("Dear")
    for number, template in enumerate(plot.body):
        parts.append(expand(template, rng, slots))
        if 0 < number < len(plot.body) - 1 and not letter and rng.random() < 0.2:
            parts.append(expand(interludes[number % len(interludes)], rng, slots))
    cut = rng.randint(2, len(parts) - 2) if rng.random() < 0.5 else 0
    text = " ".join(parts[:cut]) + "\n" + " ".join(parts[cut:]) if cut else " ".join(parts)
    return Story(
        title=title_case(expand(plot.title, rng, slots)),
        about=expand(plot.about, rng, slots),
        text=sentences(text),
        questions=[
            (sentences(expand(q, rng, slots)), sentences(expand(a, rng, slots)))
            for q, a in plot.questions
        ],
    )


def any_story(rng: random.Random, people: Slots | None = None) -> Story:
    """Tell a random story, with new people unless some are given."""
    return tell(rng, rng.choice(PLOTS), people or cast(rng))
