"""Questions with a few endings: the demo model's own kind, and a general set for other models.

A line is the text and its endings, parted by `|`, the right one first.
"""

from __future__ import annotations

import random

import msgspec

_ENDINGS = 4
_SEED = 11


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is continued by one of `endings`; the first is right."""

    text: str
    endings: tuple[str, ...]


def general_questions(most: int) -> list[Question]:
    """At most `most` of the general set, always the same ones."""
    questions = [_read(line) for line in _GENERAL.strip().splitlines()]
    random.Random(_SEED).shuffle(questions)  # noqa: S311  (order, no secrets)
    return questions[:most]


def demo_questions(most: int) -> list[Question]:
    """At most `most` questions in the words of the demo model's training text."""
    rng = random.Random(_SEED)  # noqa: S311
    found: list[Question] = []
    for question, answer, table in _DEMO_TABLES:
        pairs = [pair.split("/") for pair in table.split(";")]
        answers = list(dict.fromkeys(value for _, value in pairs))
        for key, value in pairs:
            wrong = rng.sample([other for other in answers if other not in (key, value)], 3)
            found.append(
                _question(question.format(key), answer.replace("{}", key), [value, *wrong])
            )
    for _ in range(_SUMS):
        a, b = rng.randint(2, 60), rng.randint(2, 39)
        wrong = rng.sample([n for n in range(a + b - 12, a + b + 13) if n not in (a + b, a, b)], 3)
        numbers = [str(n) for n in (a + b, *wrong)]
        found.append(_question(f"What is {a} plus {b}?", f"{a} plus {b} is *", numbers))
    rng.shuffle(found)
    return found[:most]


def _question(question: str, answer: str, words: list[str]) -> Question:
    """`answer` has a star where one of `words` belongs."""
    head, _, tail = answer.partition("*")
    text = f"Question: {question}\nAnswer: {head[:1].upper()}{head[1:]}".rstrip()
    return Question(text=text, endings=tuple(f" {word}{tail}." for word in words))


def _read(line: str) -> Question:
    text, *endings = line.split("|")
    if len(endings) != _ENDINGS:
        raise AssertionError(f"not {_ENDINGS} endings: {line}")
    return Question(text=text, endings=tuple(endings))


_SUMS = 48
# question, answer with a star for what is asked, rows of key/answer
_DEMO_TABLES = (
    (
        "What is the capital of {}?", "the capital of {} is *",
        "France/Paris;Spain/Madrid;Italy/Rome;Germany/Berlin;England/London;Austria/Vienna;"
        "Poland/Warsaw;Norway/Oslo;Sweden/Stockholm;Finland/Helsinki;Denmark/Copenhagen;"
        "Greece/Athens;Portugal/Lisbon;Ireland/Dublin;Japan/Tokyo;China/Beijing;Egypt/Cairo;"
        "Russia/Moscow;Hungary/Budapest;Cuba/Havana;Peru/Lima;Kenya/Nairobi;Canada/Ottawa;"
        "Belgium/Brussels",
    ),
    (
        "What is the opposite of {}?", "the opposite of {} is *",
        "hot/cold;big/small;fast/slow;up/down;black/white;old/young;happy/sad;open/closed;"
        "full/empty;wet/dry;hard/soft;long/short;high/low;early/late;loud/quiet;light/dark;"
        "near/far;left/right;rich/poor;clean/dirty;strong/weak;thick/thin;sweet/sour;begin/end;"
        "push/pull;win/lose;buy/sell;warm/cool;deep/shallow;wide/narrow",
    ),
    (
        "What is a young {} called?", "a young {} is called a *",
        "dog/puppy;cat/kitten;cow/calf;horse/foal;sheep/lamb;pig/piglet;duck/duckling;goat/kid;"
        "frog/tadpole;fox/cub;wolf/pup;rabbit/bunny;crow/chick;goose/gosling;hedgehog/hoglet;"
        "spider/spiderling",
    ),
    (
        "What does a {} eat?", "a {} eats *",
        "dog/meat;cat/mice;cow/grass;horse/hay;pig/roots;hen/grain;goat/leaves;frog/flies;"
        "bee/nectar;wolf/deer;bear/berries;mouse/seeds;hedgehog/beetles;snake/frogs",
    ),
    (
        "Which day comes after {}?", "* comes after {}",
        "Monday/Tuesday;Tuesday/Wednesday;Wednesday/Thursday;Thursday/Friday;Friday/Saturday;"
        "Saturday/Sunday;Sunday/Monday",
    ),
    (
        "Which month comes before {}?", "* comes before {}",
        "February/January;March/February;April/March;May/April;June/May;July/June;August/July;"
        "September/August;October/September;November/October;December/November",
    ),
    (
        "What colour is {}?", "{} is *",
        "grass/green;snow/white;a lemon/yellow;coal/black;the sky/blue;blood/red;a carrot/orange;"
        "an elephant/grey;chocolate/brown",
    ),
)  # fmt: skip

_GENERAL = """
The capital of Australia is| Canberra| Sydney| Melbourne| Perth
The capital of Brazil is| Brasília| Rio de Janeiro| São Paulo| Salvador
The largest planet of the solar system is| Jupiter| Saturn| Earth| Neptune
The planet closest to the sun is| Mercury| Venus| Mars| Earth
The chemical symbol for gold is| Au| Ag| Go| Gd
The chemical symbol for sodium is| Na| So| S| N
Water is made of hydrogen and| oxygen| nitrogen| carbon| helium
The freezing point of water in degrees Celsius is| 0| 32| 100| -18
Light travels faster than| sound| itself| time| gravity waves
The author of "Hamlet" is| William Shakespeare| Charles Dickens| Jane Austen| Mark Twain
"Don Quixote" was written by| Miguel de Cervantes| Dante Alighieri| Victor Hugo| Leo Tolstoy
The Mona Lisa was painted by| Leonardo da Vinci| Michelangelo| Raphael| Rembrandt
The Second World War ended in| 1945| 1918| 1939| 1989
The Berlin Wall fell in| 1989| 1961| 1945| 2001
The first person to walk on the moon was| Neil Armstrong| Yuri Gagarin| Buzz Aldrin| John Glenn
The longest river in South America is the| Amazon| Nile| Danube| Mississippi
The highest mountain on Earth is| Mount Everest| Mont Blanc| Kilimanjaro| Denali
The official language of Brazil is| Portuguese| Spanish| French| English
The currency of Japan is the| yen| won| yuan| dollar
The currency of the United Kingdom is the| pound| euro| dollar| franc
The human heart has| four chambers| two chambers| six chambers| one chamber
Plants take in carbon dioxide and give off| oxygen| nitrogen| hydrogen| methane
Plants make sugar from light by| photosynthesis| digestion| fermentation| respiration
The powerhouse of the cell is the| mitochondrion| nucleus| ribosome| membrane
DNA is stored in the cell's| nucleus| wall| ribosomes| cytoplasm
A triangle with three equal sides is called| equilateral| isosceles| scalene| obtuse
The sum of the angles of a triangle is| 180 degrees| 90 degrees| 270 degrees| 360 degrees
The square root of 144 is| 12| 14| 11| 72
7 times 8 is| 56| 54| 48| 63
15 plus 27 is| 42| 41| 32| 52
100 minus 37 is| 63| 73| 67| 53
Half of 90 is| 45| 40| 50| 180
The next number in 2, 4, 8, 16 is| 32| 24| 20| 18
The next number in 1, 1, 2, 3, 5, 8 is| 13| 11| 10| 16
A dozen is| twelve| ten| twenty| six
A century has| 100 years| 10 years| 1000 years| 50 years
The opposite of "ancient" is| modern| old| broken| heavy
The opposite of "expand" is| contract| grow| explain| extend
The past tense of "go" is| went| goed| gone to| going
The plural of "mouse" is| mice| mouses| mouse's| meese
The word "quickly" is an| adverb| adjective| noun| article
She put the milk back into the| fridge| oven| drawer| shoe
He forgot his umbrella and got| wet| hungry| taller| rich
The glass fell from the table and| broke| sang| grew| slept
After running ten kilometres she was very| tired| square| purple| expensive
To cut paper, you use a pair of| scissors| shoes| glasses| socks
Because the road was icy, he drove| slowly| loudly| sweetly| upwards
They turned on the heating because the room was| cold| bright| loud| empty
If all cats are animals and Tom is a cat, then Tom is| an animal| a dog| a plant| a stone
Anna is taller than Ben, and Ben is taller than Carl. The tallest is| Anna| Ben| Carl| nobody
If yesterday was Monday, then tomorrow is| Wednesday| Tuesday| Thursday| Sunday
A recipe calls for 3 eggs. For two cakes you need| 6 eggs| 3 eggs| 5 eggs| 9 eggs
In Python, the keyword that defines a function is| def| func| function| lambda x
In Python, `len([1, 2, 3])` gives| 3| 2| 6| 1
In Python, `"ab" * 2` gives| "abab"| "aabb"| "ab2"| an error
In HTML, a link is written with the tag| <a>| <b>| <p>| <img>
In SQL, rows are read with the statement| SELECT| INSERT| DELETE| UPDATE
The file extension of a Python program is| .py| .js| .java| .pt
The HTTP status code for "not found" is| 404| 200| 500| 301
A byte has| 8 bits| 4 bits| 16 bits| 10 bits
Binary 101 is decimal| 5| 3| 7| 101
The French word for "thank you" is| merci| danke| gracias| grazie
The German word for "house" is| Haus| Maus| Hund| Baum
The Spanish word for "water" is| agua| fuego| tierra| leche
"""
