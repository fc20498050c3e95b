"""Questions with six documents each: the answer, what sounds like it, and answers to others."""

from __future__ import annotations

_QUESTIONS = (
    ("how many people live in berlin",
     "Berlin has a population of 3,520,031 registered inhabitants in an area of 891.82 square "
     "kilometers.",
     "Berlin is well known for its museums and its night life."),
    ("what causes tides in the ocean",
     "Tides are caused by the gravitational pull of the moon and the sun on the water.",
     "The ocean covers about 71 percent of the surface of the earth."),
    ("who wrote the novel moby dick",
     "Herman Melville published Moby-Dick in 1851, and few people bought it in his lifetime.",
     "A novel is a long work of fiction in prose, often printed as a book."),
    ("symptoms of iron deficiency",
     "People who lack iron are often tired, pale and short of breath, and their nails break.",
     "Iron is a metal that rusts when it meets water and oxygen."),
    ("how long does it take to boil an egg",
     "A soft egg needs about six minutes in boiling water, a hard one nine to twelve.",
     "Hens lay an egg nearly every day as long as there is enough light."),
    ("when did the berlin wall fall",
     "On 9 November 1989 the border was opened, and people began to tear the wall down.",
     "The wall of a house in Berlin is often painted by young artists."),
    ("difference between a virus and bacteria",
     "Bacteria are cells that live by themselves; a virus needs the cells of a host to multiply.",
     "Antibiotics were found by Alexander Fleming, who looked at a mould."),
    ("best time to plant tomatoes",
     "Put tomato plants outside after the last frost, once the nights stay above 10 degrees.",
     "Tomatoes came to Europe from Mexico in the 16th century."),
    ("what is the capital of australia",
     "Canberra was built as the seat of the Australian government, between Sydney and Melbourne.",
     "Sydney is the largest city in Australia and famous for its opera house."),
    ("how do vaccines work",
     "A vaccine shows the immune system a harmless part of a germ, so that it can make antibodies "
     "before the real one comes.",
     "Vaccines are kept in refrigerators between 2 and 8 degrees."),
    ("why is the sky blue",
     "Air scatters short waves of sunlight more than long ones, so blue light reaches us from all "
     "sides.",
     "The sky was blue when they left the harbour in the morning."),
    ("speed of light in vacuum",
     "In a vacuum light travels at 299,792,458 metres per second.",
     "A vacuum cleaner with a light shows dust on the floor."),
    ("how to remove red wine stains",
     "Cover the stain with salt at once, then pour boiling water through the cloth.",
     "Red wine is made of dark grapes whose skins stay in the must."),
    ("who painted the night watch",
     "The Night Watch was finished by Rembrandt van Rijn in 1642 and hangs in Amsterdam.",
     "At night a watch is kept on every ship at sea."),
    ("what does a carburetor do",
     "It mixes air with a fine spray of fuel before the mixture enters the cylinders of an engine.",
     "Most cars that are built today have an electric motor or fuel injection."),
    ("average lifespan of a cat",
     "A cat that lives indoors reaches 12 to 18 years, and some grow older than 20.",
     "Cats sleep for most of the day and hunt in the evening."),
    ("how deep is the mariana trench",
     "Its deepest point, the Challenger Deep, lies about 10,935 metres below the surface.",
     "Soldiers dug a trench along the river to stop the tanks."),
    ("is honey safe for babies",
     "Children under one year must not eat honey, because spores in it can cause botulism.",
     "Bees collect nectar from some two million flowers for a jar of honey."),
    ("what is compound interest",
     "Interest is paid on the sum and on the interest of earlier years, so the money grows faster "
     "and faster.",
     "The museum is of interest to anyone who collects old coins and money."),
    ("which planet has the most moons",
     "With 146 known satellites, Saturn is ahead of Jupiter.",
     "The moon of the earth always shows us the same side."),
)  # fmt: skip


def sets() -> list[tuple[str, list[str]]]:
    """Each question and its six documents, its own answer at another place each time."""
    count = len(_QUESTIONS)
    made: list[tuple[str, list[str]]] = []
    for place, (question, answer, near) in enumerate(_QUESTIONS):
        others = [_QUESTIONS[(place + step) % count][1 + step % 2] for step in (1, 4, 7, 10)]
        documents = [answer, near, *others]
        turn = place % len(documents)
        made.append((question, documents[turn:] + documents[:turn]))
    return made
