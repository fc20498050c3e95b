"""Whole documents of the demo text, and which of them are for training and which are held out.

An empty line separates documents in a plain text file, so a document has none inside. Only a
"collection" has: it is several documents in one. ``<|...|>`` markers are special tokens.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from scripts.demo_model import words
from scripts.demo_model.grammar import expand
from scripts.demo_model.plot import PLOTS
from scripts.demo_model.questions import any_question, arithmetic, join_items, word_problem
from scripts.demo_model.stories import Story, any_story, cast, tell

SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer in short sentences.",
    "You are a friendly teacher.",
    "You tell stories to children.",
    "Answer the questions of the user.",
    "You are a small language model.",
)
SMALL_TALK = (
    ("[Hello|Hi|Good morning|Hello there]!", "[Hello! How can I help you?|Hello! What would you "
     "like to know?|Good day! Shall I tell you a story?]"),
    ("[Who are you|What are you|What is your name]?", "I am a [small|tiny] language model. I can "
     "tell stories, answer questions and do sums."),
    ("What can you do?", "I can [tell a short story|tell stories], answer [simple|easy] questions "
     "and [add numbers|do sums]."),
    ("[How are you|How do you do|How are you today]?", "I am [well|fine], thank you. [How are "
     "you?|How can I help you?]"),
    ("[Thank you|Thanks|Thank you very much|That was good]!", "[You are welcome.|You are welcome! "
     "Is there anything else?|Gladly!]"),
    ("[Goodbye|See you|Good night|Bye]!", "[Goodbye!|Goodbye! Come back soon.|Good night!]"),
)  # fmt: skip


def story_document(rng: random.Random, _held_out: bool) -> str:
    """Write a story, often with a title, sometimes with questions about it."""
    story = any_story(rng)
    lines = [story.title] if rng.random() < 0.5 else []
    lines.append(story.text)
    if rng.random() < 0.45:
        lines += question_lines(rng, story, rng.randint(1, 4))
    return "\n".join(lines)


def question_lines(rng: random.Random, story: Story, count: int) -> list[str]:
    """Return lines of questions and answers about the story."""
    chosen = rng.sample(story.questions, min(count, len(story.questions)))
    return [line for q, a in chosen for line in (f"Question: {q}", f"Answer: {a}")]


def question_document(rng: random.Random, held_out: bool) -> str:
    """Write a few questions with answers, each about something else."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 6)):
        question, answer = any_question(rng, held_out)
        lines += [f"Question: {question}", f"Answer: {answer}"]
    return "\n".join(lines)


def sums_document(rng: random.Random, held_out: bool) -> str:
    """Write lines of arithmetic."""
    make = rng.choice((arithmetic, arithmetic, word_problem))
    pairs = [make(rng, held_out) for _ in range(rng.randint(3, 8))]
    if rng.random() < 0.4:
        return "\n".join(answer for _, answer in pairs)
    return "\n".join(f"{question} {answer}" for question, answer in pairs)


def animal_document(rng: random.Random, _held_out: bool) -> str:
    """Describe an animal or a job."""
    x = rng.choice(list(words.ANIMALS))
    sound, home, food, legs, young, more = words.ANIMALS[x]
    slots = {
        "x": x, "sound": sound, "home": home, "food": food, "young": young, "more": more,
        "legs": words.NUMBERS[legs] if legs else "no", "name": rng.choice(words.GIRLS + words.BOYS),
        "out": rng.choice(words.OUTDOORS), "day": rng.choice(words.DAYS),
        "month": rng.choice(words.MONTHS), "season": rng.choice(words.SEASONS),
    }  # fmt: skip
    facts = [
        "[It lives|You can find it] {home}.", "It eats [mostly |]{food}.", "It has {legs} legs.",
        "A young {x} is called a {young}.", "It {more}.", "[Often|Sometimes] it {sound}.",
    ]  # fmt: skip
    rng.shuffle(facts)
    body = [
        "[The {x} is an animal|A {x} is an animal|This is about the {x}].",
        *facts[: rng.randint(3, 6)],
        "[@open, {name} saw a {x} near the {out}.|{name} would like to have a {x}.|"
        "Many people like the {x}.|{name} once drew a picture of a {x}.|]",
    ]
    return " ".join(filter(None, (expand(line, rng, slots) for line in body)))


def list_document(rng: random.Random, _held_out: bool) -> str:
    """Write a shopping list, a row of numbers or a row of days."""
    kind = rng.randrange(3)
    if kind == 0:
        goods = rng.sample(words.FOODS + words.OBJECTS, rng.randint(3, 6))
        name = rng.choice(words.GIRLS + words.BOYS)
        counts = [f"- {rng.randint(2, 20)} {f}" for f in rng.sample(words.FRUITS, 3)]
        return f"{name} needs:\n" + "\n".join([*(f"- {g}" for g in goods), *counts])
    if kind == 1:
        start, step = rng.randint(0, 40), rng.choice((1, 1, 2, 5, 10))
        return ", ".join(str(start + step * i) for i in range(rng.randint(5, 14))) + "."
    row, start = rng.choice((words.DAYS, words.MONTHS)), rng.randrange(7)
    return join_items([row[(start + i) % len(row)] for i in range(rng.randint(3, len(row)))]) + "."


def book_document(rng: random.Random, _held_out: bool) -> str:
    """Write several chapters about the same people, with questions at the end."""
    people = cast(rng)
    stories = [tell(rng, plot, people) for plot in rng.sample(PLOTS, rng.randint(3, 8))]
    lines: list[str] = []
    for number, story in enumerate(stories, 1):
        lines += [f"Chapter {number}: {story.title}", story.text]
    for number in rng.sample(range(len(stories)), min(3, len(stories))):
        lines += [f"Question: What is the title of chapter {number + 1}?"]
        lines += [f"Answer: The title of chapter {number + 1} is {stories[number].title}."]
        lines += question_lines(rng, stories[number], 1)
    return "\n".join(lines)


def collection_document(rng: random.Random, held_out: bool) -> str:
    """Join several plain documents by empty lines, as in a file of texts."""
    makers = (story_document, story_document, question_document, sums_document, animal_document)
    return "\n\n".join(rng.choice(makers)(rng, held_out) for _ in range(rng.randint(4, 12)))


def turn(rng: random.Random, held_out: bool) -> list[tuple[str, str]]:
    """Return one or more chat turns (user, assistant) on one subject."""
    kind = rng.random()
    if kind < 0.5:
        question, answer = any_question(rng, held_out)
        return [(question, answer)]
    if kind < 0.72:
        story = any_story(rng)
        ask = expand(
            "[Tell me a [short |]story|Please tell me a story|Write a [short |]story|I want to "
            "hear a story|Can you tell me a story] about {about}", rng, {"about": story.about},
        )  # fmt: skip
        turns = [(ask + ("?" if ask.startswith("Can") else "."), story.text)]
        return turns + (story.questions[:1] if rng.random() < 0.4 else [])
    if kind < 0.85:
        story = any_story(rng)
        (first, reply), *more = rng.sample(story.questions, min(3, len(story.questions)))
        lead = rng.choice(("Read this story:", "Here is a story.", "Listen:"))
        return [(f"{lead}\n{story.text}\n{first}", reply), *more[: rng.randint(0, 2)]]
    user, reply = rng.choice(SMALL_TALK)
    return [(expand(user, rng, {}), expand(reply, rng, {}))]


def chat_text(system: str, turns: list[tuple[str, str]]) -> str:
    """Return a finished chat exactly as the chat template writes it, without BOS and EOS."""
    text = f"<|system|>\n{system}<|end|>\n" if system else ""
    for user, assistant in turns:
        text += f"<|user|>\n{user}<|end|>\n<|assistant|>\n{assistant}<|end|>\n"
    return text.removesuffix("\n")


def chat_document(rng: random.Random, held_out: bool, turns: tuple[int, int] = (1, 4)) -> str:
    """Write a chat with some turns, half of the time with a system message."""
    system = rng.choice(SYSTEMS) if rng.random() < 0.5 else ""
    parts = [t for _ in range(rng.randint(*turns)) for t in turn(rng, held_out)]
    return chat_text(system, parts)


def long_chat_document(rng: random.Random, held_out: bool) -> str:
    """Write a long chat."""
    return chat_document(rng, held_out, (6, 14))


SHORT = (
    (story_document, 0.38), (question_document, 0.17), (sums_document, 0.1),
    (animal_document, 0.05), (list_document, 0.02), (chat_document, 0.28),
)  # fmt: skip
LONG = (
    (book_document, 0.35), (collection_document, 0.3), (long_chat_document, 0.2),
    (story_document, 0.05), (question_document, 0.05), (chat_document, 0.05),
)  # fmt: skip
# No chats: a plain text file has no special tokens to write their markers with.
HELD_OUT = (
    (story_document, 0.6), (question_document, 0.18), (sums_document, 0.1),
    (animal_document, 0.08), (list_document, 0.04),
)  # fmt: skip


def is_held_out(text: str) -> bool:
    """Whether the document is held out: one in sixteen is, chosen by the hash of its text."""
    return hashlib.sha256(text.encode()).digest()[0] % 16 == 0


def documents(seed: int, kind: str) -> Iterator[str]:
    """Yield documents for ever; kind is ``short`` or ``long`` (for training) or ``held-out``."""
    mix = {"short": SHORT, "long": LONG, "held-out": HELD_OUT}[kind]
    held_out = kind == "held-out"
    rng = random.Random(f"{seed}/{kind}")
    makers, weights = [m for m, _ in mix], [w for _, w in mix]
    while True:
        text = rng.choices(makers, weights)[0](rng, held_out)
        # The parts of a collection are documents too, so each part is checked.
        parts = text.split("\n\n") if not held_out else [text]
        if all(is_held_out(part) == held_out for part in parts):
            yield text


def held_out_documents(seed: int, size: int) -> list[str]:
    """Return different held-out documents of about ``size`` bytes in all."""
    chosen: dict[str, None] = {}
    total = 0
    for text in documents(seed, "held-out"):
        if text not in chosen:
            chosen[text] = None
            total += len(text.encode()) + 2
        if total >= size:
            return list(chosen)
    raise AssertionError("the documents never end")
