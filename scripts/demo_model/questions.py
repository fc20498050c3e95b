"""Questions with answers: arithmetic, the fact tables, little language tasks."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from scripts.demo_model import words
from scripts.demo_model.grammar import Slots, expand, sentences
from scripts.demo_model.stories import person

Pair = tuple[str, str]


def held_out_sum(a: int, b: int) -> bool:
    """Whether the pair of numbers is held out: about one pair in sixteen is."""
    return hashlib.sha256(f"{a},{b}".encode()).digest()[0] % 16 == 0


def numbers(rng: random.Random, high: int, held_out: bool) -> tuple[int, int]:
    """Draw two numbers from 0 to ``high``: a pair for training, or one that is held out."""
    while True:
        a, b = rng.randint(0, high), rng.randint(0, high)
        if held_out_sum(a, b) == held_out:
            return a, b


def arithmetic(rng: random.Random, held_out: bool) -> Pair:
    """Ask for a sum, a difference, a product or a comparison."""
    kind = rng.random()
    if kind < 0.4:
        a, b = numbers(rng, rng.choice((9, 20, 99, 99)), held_out)
        question = rng.choice(
            ("What is {} plus {}?", "What is {} + {}?", "How much is {} plus {}?")
        )
        answer = rng.choice(("{} plus {} is {}.", "{} + {} = {}."))
        return question.format(a, b), answer.format(a, b, a + b)
    if kind < 0.65:
        a, b = numbers(rng, rng.choice((9, 20, 99)), held_out)
        a, b = max(a, b), min(a, b)
        question = rng.choice(("What is {} minus {}?", "What is {} - {}?"))
        answer = rng.choice(("{} minus {} is {}.", "{} - {} = {}."))
        return question.format(a, b), answer.format(a, b, a - b)
    if kind < 0.82:
        a, b = numbers(rng, 10, held_out)
        question = rng.choice(("What is {} times {}?", "How much is {} times {}?"))
        return question.format(a, b), f"{a} times {b} is {a * b}."
    a, b = numbers(rng, 99, held_out)
    if a == b:
        return f"Is {a} equal to {b}?", f"Yes, {a} is equal to {b}."
    if kind < 0.92:
        return f"Which is greater, {a} or {b}?", f"{max(a, b)} is greater than {min(a, b)}."
    word = "Yes" if a > b else "No"
    return f"Is {a} more than {b}?", f"{word}, {a} is {'more' if a > b else 'less'} than {b}."


def word_problem(rng: random.Random, held_out: bool) -> Pair:
    """Ask for a sum or a difference in words."""
    taken: set[str] = set()
    slots = Slots(person(rng, "a", taken) | person(rng, "b", taken))
    a, b = 0, 0
    while min(a, b) < 2:
        a, b = numbers(rng, rng.choice((20, 50)), held_out)
    plus = rng.random() < 0.5
    if not plus:
        a, b = max(a, b), min(a, b)
    slots.update(
        n=str(a), m=str(b), fruit=rng.choice(words.FRUITS), sum=str(a + b), left=str(a - b)
    )
    if plus:
        question = (
            "{a} has {n} {fruit}. {b} gives {ahim} {m} [more|{fruit}]. How many {fruit} does {a} "
            "have [now|in all]?"
        )
        answer = "[{n} plus {m} is {sum}. |]{a} has {sum} {fruit} [now|in all]."
    else:
        question = (
            "{a} has {n} {fruit}. {Ahe} [gives {m} to {b}|loses {m} of them|sells {m} {fruit}]. "
            "How many {fruit} does {a} have left?"
        )
        answer = "[{n} minus {m} is {left}. |]{a} has {left} {fruit} left."
    return expand(question, rng, slots), expand(answer, rng, slots)


def animal(rng: random.Random) -> Pair:
    """Ask for something in the table of animals."""
    name = rng.choice(list(words.ANIMALS))
    sound, home, food, legs, young, more = words.ANIMALS[name]
    s = Slots(
        x=name, sound=sound, home=home, food=food, legs=words.NUMBERS[legs] if legs else "no",
        young=young, more=more,
    )  # fmt: skip
    question, answer = rng.choice(
        (
            ("Where does a {x} live?", "A {x} lives {home}."),
            ("What does a {x} eat?", "A {x} eats {food}."),
            ("How many legs does a {x} have?", "A {x} has {legs} legs."),
            ("What is a young {x} called?", "A young {x} is called a {young}."),
            ("What sound does a {x} make?", "A {x} {sound}."),
            ("What do you know about the {x}?", "A {x} lives {home}. It eats {food}. It {more}."),
            ("Tell me something about a {x}.", "A {x} {more}."),
        )
    )
    return expand(question, rng, s), expand(answer, rng, s)


def calendar(rng: random.Random) -> Pair:
    """Ask for something about days, months and seasons."""
    i, j = rng.randrange(7), rng.randrange(12)
    day, month = words.DAYS, words.MONTHS
    return rng.choice(
        (
            (f"Which day comes after {day[i]}?", f"{day[(i + 1) % 7]} comes after {day[i]}."),
            (f"Which day comes before {day[i]}?", f"{day[i - 1]} comes before {day[i]}."),
            (f"Which month comes after {month[j]}?", f"{month[j - 11]} comes after {month[j]}."),
            (f"Which month comes before {month[j]}?", f"{month[j - 1]} comes before {month[j]}."),
            (f"How many days does {month[j]} have?", f"{month[j]} has {words.MONTH_DAYS[j]} days."),
            ("How many days does a week have?", "A week has seven days."),
            ("How many months does a year have?", "A year has twelve months."),
            ("What are the days of the week?", "The days of the week are " + join_items(day) + "."),
            ("What are the seasons?", "The seasons are " + join_items(words.SEASONS) + "."),
            (
                f"If today is {day[i]}, what day is tomorrow?",
                f"If today is {day[i]}, tomorrow is {day[(i + 1) % 7]}.",
            ),
            (f"Is {day[i]} a day or a month?", f"{day[i]} is a day."),
            (f"Is {month[j]} a day or a month?", f"{month[j]} is a month."),
        )
    )


def fact(rng: random.Random) -> Pair:
    """Ask for a row of one of the smaller tables."""
    kind = rng.randrange(8)
    if kind == 0:
        country, city = rng.choice(list(words.CAPITALS.items()))
        return rng.choice(
            (
                (f"What is the capital of {country}?", f"The capital of {country} is {city}."),
                (f"In which country is {city}?", f"{city} is in {country}."),
            )
        )
    if kind == 1:
        thing, colour = rng.choice(list(words.THING_COLOURS.items()))
        return f"What colour is {thing}?", sentences(f"{thing} is {colour}.")
    if kind == 2:
        tool, use = rng.choice(list(words.TOOLS.items()))
        return rng.choice(
            (
                (f"What is {tool} for?", sentences(f"{tool} is used to {use}.")),
                (f"What do you need to {use}?", f"To {use}, you need {tool}."),
            )
        )
    if kind == 3:
        job, work = rng.choice(list(words.JOBS.items()))
        return rng.choice(
            (
                (f"What does a {job} do?", f"A {job} {work}."),
                (f"Who {work}?", f"A {job} {work}."),
            )
        )
    if kind == 4:
        shape, sides = rng.choice(list(words.SHAPES.items()))
        return f"How many sides does a {shape} have?", f"A {shape} has {sides} sides."
    if kind == 5:
        act, part = rng.choice(list(words.SENSES.items()))
        return f"With what do we {act}?", f"We {act} with our {part}."
    first, second = rng.sample(rng.choice(words.OPPOSITES), 2)
    return f"What is the opposite of {first}?", f"The opposite of {first} is {second}."


def language(rng: random.Random) -> Pair:
    """Set a little task: a list, a sentence with a word, repeating, yes or no, counting."""
    kind = rng.randrange(7)
    if kind == 0:
        topic, pool = rng.choice(
            (
                ("animals", list(words.ANIMALS)), ("colours", words.COLOURS),
                ("days", words.DAYS), ("months", words.MONTHS), ("jobs", list(words.JOBS)),
                ("things to eat", words.FOODS), ("places", list(words.PLACES)),
                ("countries", list(words.CAPITALS)), ("feelings", words.GLAD + words.SAD),
            )
        )  # fmt: skip
        count = rng.randint(2, 5)
        chosen = rng.sample(pool, count)
        return f"Name {words.NUMBERS[count]} {topic}.", sentences(join_items(chosen) + ".")
    if kind == 1:
        word = rng.choice(words.OBJECTS)
        s = Slots(person(rng, "a", set()))
        s["obj"], s["colour"] = word, rng.choice(words.COLOURS)
        s["spot"], s["size"] = rng.choice(words.SPOTS), rng.choice(words.SIZES)
        answer = expand(
            "[{a} has a {size} {colour} {obj}.|The {colour} {obj} is {spot}."
            "|{a} put the {obj} {spot}.|Where is my {size} {obj}?|{a} found a {obj} {spot}.]",
            rng, s,
        )  # fmt: skip
        return f'Write a sentence with the word "{word}".', answer
    if kind == 2:
        chosen = rng.sample(words.OBJECTS + words.FOODS + words.COLOURS, rng.randint(1, 4))
        return "Repeat these words: " + ", ".join(chosen) + ".", sentences(", ".join(chosen) + ".")
    if kind == 3:
        start, count = rng.randint(0, 90), rng.randint(4, 9)
        row = [str(n) for n in range(start, start + count)]
        return f"Count from {row[0]} to {row[-1]}.", ", ".join(row) + "."
    if kind == 4:
        is_animal = rng.random() < 0.5
        thing = rng.choice(list(words.ANIMALS) if is_animal else words.OBJECTS)
        thing = ("an " if thing[0] in "aeiou" else "a ") + thing
        head, tail = ("Yes", "an animal") if is_animal else ("No", "not an animal")
        return f"Is {thing} an animal?", f"{head}, {thing} is {tail}."
    if kind == 5:
        chosen = rng.sample(words.OBJECTS, 3)
        colours = rng.sample(words.COLOURS, 3)
        i = rng.randrange(3)
        pairs = zip(colours, chosen, strict=True)
        things = join_items([f"{'an' if c[0] in 'aeiou' else 'a'} {c} {o}" for c, o in pairs])
        return (
            f"I have {things}. What is {colours[i]}?",
            f"The {chosen[i]} is {colours[i]}.",
        )
    n = rng.randint(1, 20)
    word = words.NUMBERS[n]
    return rng.choice(
        (
            (f"How do you write {n} as a word?", f"{n} is written {word}."),
            (f"Which number is {word}?", f"{sentences(word)} is {n}."),
            (f"Which number comes after {n}?", f"{n + 1} comes after {n}."),
        )
    )


def join_items(items: list[str]) -> str:
    """Join the items as ``a, b and c``."""
    return ", ".join(items[:-1]) + " and " + items[-1]


def any_question(rng: random.Random, held_out: bool) -> Pair:
    """Draw one question with its answer; ``held_out`` only picks the arithmetic pairs."""
    kind = rng.random()
    if kind < 0.36:
        return arithmetic(rng, held_out)
    if kind < 0.46:
        return word_problem(rng, held_out)
    plain: tuple[Callable[[random.Random], Pair], ...] = (animal, calendar, fact, fact, language)
    return rng.choice(plain)(rng)
