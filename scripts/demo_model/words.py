"""The words of the demo texts: people, things, places and the small fact tables."""

from __future__ import annotations


def _split(text: str, separator: str = " ") -> list[str]:
    """Return the words of a text: easier to read than a list of quoted words."""
    return text.split(separator)


GIRLS = _split(
    "Anna Mia Lily Rosa Nora Ella Ida Clara Zoe Ruby Emma Lena Maya Tara Vera Hanna Julia Sofia "
    "Alma Pia Olga Greta Lucy Dora Nina Eva"
)
BOYS = _split(
    "Tom Ben Max Leo Sam Paul Finn Jack Oscar Hugo Emil Karl Noah Adam Felix Ivan Peter Rami "
    "David Milo Otto Theo Luis Omar Will Tim"
)

PLACES: dict[str, str] = {  # place -> preposition
    "garden": "in", "forest": "in", "market": "at", "river": "by", "hill": "on", "school": "at",
    "beach": "on", "park": "in", "farm": "on", "village": "in", "lake": "by", "meadow": "in",
    "bridge": "on", "station": "at", "library": "in", "harbour": "at", "kitchen": "in",
    "barn": "in", "mill": "at", "town": "in", "pond": "by", "castle": "in", "museum": "in",
    "bakery": "in", "valley": "in", "well": "by", "orchard": "in", "field": "in",
}  # fmt: skip
OUTDOORS = _split(
    "garden forest river hill beach park lake meadow bridge pond valley orchard field farm"
)

OBJECTS = _split(
    "kite ball hat book drum key lamp boat doll cup bell scarf coat basket box bike coin map ring "
    "flute blanket bag whistle button stone shell spoon candle rope bucket umbrella puzzle clock "
    "pencil mirror train letter glove ladder chair jar brush"
)
COLOURS = _split("red blue green yellow brown white black grey orange purple pink golden silver")
SIZES = _split("small big old new tiny long heavy little plain shiny pretty")
BUILDS = _split("small big old young little thin grey brown white black clever quiet")
SPOTS = _split(
    "under the bed;behind the door;in the old tree;under the table;in the tall grass;"
    "behind the shed;next to the stove;under the bench;inside the big box;on the top shelf;"
    "near the gate;between two stones;under a pile of leaves;behind the curtain;in the hay;"
    "at the bottom of the stairs;under the bridge;on the window sill;in a drawer;"
    "behind the wall;in the boat;under a bush;on the roof;in the cellar",
    ";",
)
FOODS = _split(
    "bread soup cheese apples pears plums nuts berries cake honey rice beans carrots potatoes "
    "eggs pancakes porridge grapes cherries"
)
FRUITS = _split(
    "apples pears plums nuts berries eggs carrots potatoes cherries shells stones coins buttons "
    "stamps marbles flowers cards pencils books candles"
)
GLAD = _split("happy glad proud cheerful thankful pleased excited relieved")
SAD = _split("sad worried upset lonely tired afraid unhappy nervous")
JOBS: dict[str, str] = {
    "baker": "bakes bread", "farmer": "grows food", "teacher": "teaches children",
    "doctor": "helps sick people", "fisher": "catches fish", "tailor": "sews clothes",
    "painter": "paints pictures", "gardener": "looks after plants", "miller": "makes flour",
    "carpenter": "builds things from wood", "singer": "sings songs", "sailor": "works on a ship",
    "driver": "drives a bus", "cook": "makes meals", "writer": "writes books",
    "shepherd": "looks after sheep", "builder": "builds houses", "pilot": "flies a plane",
    "potter": "makes pots from clay", "nurse": "cares for patients",
}  # fmt: skip
DAYS = _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _split(
    "January February March April May June July August September October November December"
)
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SEASONS = _split("spring summer autumn winter")
NUMBERS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)

# animal -> (sound, home, food, legs, young, one more fact)
ANIMALS: dict[str, tuple[str, str, str, int, str, str]] = {
    "dog": ("barks", "in a house", "meat", 4, "puppy", "likes to run and play"),
    "cat": ("purrs", "in a house", "mice", 4, "kitten", "can see well in the dark"),
    "cow": ("moos", "on a farm", "grass", 4, "calf", "gives milk"),
    "horse": ("neighs", "in a stable", "hay", 4, "foal", "can run very fast"),
    "sheep": ("bleats", "in a field", "grass", 4, "lamb", "gives wool"),
    "pig": ("grunts", "on a farm", "roots", 4, "piglet", "likes to roll in the mud"),
    "hen": ("clucks", "on a farm", "grain", 2, "chick", "lays eggs"),
    "duck": ("quacks", "by a pond", "water plants", 2, "duckling", "swims well"),
    "goat": ("bleats", "in the hills", "leaves", 4, "kid", "climbs on steep rocks"),
    "frog": ("croaks", "by a pond", "flies", 4, "tadpole", "can jump far"),
    "bee": ("buzzes", "in a hive", "nectar", 6, "larva", "makes honey"),
    "owl": ("hoots", "in a tree", "mice", 2, "owlet", "hunts at night"),
    "fox": ("yelps", "in a den", "mice", 4, "cub", "has a bushy tail"),
    "wolf": ("howls", "in the forest", "deer", 4, "pup", "lives in a pack"),
    "bear": ("growls", "in a cave", "berries", 4, "cub", "sleeps in winter"),
    "rabbit": ("squeaks", "in a burrow", "grass", 4, "bunny", "has long ears"),
    "mouse": ("squeaks", "in a hole", "seeds", 4, "pup", "has a long tail"),
    "squirrel": ("chatters", "in a tree", "nuts", 4, "kitten", "hides food for the winter"),
    "lion": ("roars", "in the grassland", "meat", 4, "cub", "sleeps most of the day"),
    "crow": ("caws", "in a nest", "seeds", 2, "chick", "is a clever bird"),
    "goose": ("honks", "by a lake", "grass", 2, "gosling", "flies south in autumn"),
    "donkey": ("brays", "in a stable", "hay", 4, "foal", "can carry heavy loads"),
    "hedgehog": ("snuffles", "under a hedge", "beetles", 4, "hoglet", "has sharp spines"),
    "snake": ("hisses", "in the grass", "frogs", 0, "hatchling", "has no legs"),
    "elephant": ("trumpets", "in the grassland", "leaves", 4, "calf", "has a long trunk"),
    "monkey": ("chatters", "in a tree", "fruit", 4, "baby", "climbs from branch to branch"),
    "turtle": ("hisses", "by a lake", "plants", 4, "hatchling", "carries a hard shell"),
    "spider": ("is silent", "in a web", "flies", 8, "spiderling", "spins a web"),
    "ant": ("is silent", "in a nest", "seeds", 6, "larva", "is small but strong"),
    "whale": ("sings", "in the sea", "tiny sea animals", 0, "calf", "is very big"),
}  # fmt: skip
TALE_ANIMALS = _split(
    "dog cat goat frog owl fox wolf bear rabbit mouse squirrel crow goose donkey hedgehog turtle "
    "duck hen horse sheep"
)

OPPOSITES = [
    _split(pair, "/")
    for pair in _split(
        "hot/cold big/small fast/slow up/down day/night black/white old/young happy/sad "
        "open/closed full/empty wet/dry hard/soft long/short high/low early/late loud/quiet "
        "light/dark near/far left/right rich/poor clean/dirty strong/weak thick/thin sweet/sour "
        "begin/end push/pull win/lose buy/sell warm/cool deep/shallow heavy/light wide/narrow"
    )
]
CAPITALS: dict[str, str] = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Germany": "Berlin",
    "England": "London", "Austria": "Vienna", "Poland": "Warsaw", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Greece": "Athens",
    "Portugal": "Lisbon", "Ireland": "Dublin", "Japan": "Tokyo", "China": "Beijing",
    "Egypt": "Cairo", "Russia": "Moscow", "Hungary": "Budapest", "Cuba": "Havana",
    "Peru": "Lima", "Kenya": "Nairobi", "Canada": "Ottawa", "Belgium": "Brussels",
}  # fmt: skip
THING_COLOURS: dict[str, str] = {
    "grass": "green", "snow": "white", "a lemon": "yellow", "coal": "black", "the sky": "blue",
    "blood": "red", "a carrot": "orange", "milk": "white", "the sun": "yellow", "a frog": "green",
    "an elephant": "grey", "a strawberry": "red", "chocolate": "brown", "the night": "black",
    "a banana": "yellow", "a cherry": "red", "salt": "white", "a cucumber": "green",
}  # fmt: skip
TOOLS: dict[str, str] = {
    "a hammer": "hit nails", "a saw": "cut wood", "a needle": "sew clothes", "a spoon": "eat soup",
    "a broom": "sweep the floor", "a knife": "cut bread", "a key": "open a door",
    "a clock": "tell the time", "a pen": "write letters", "an umbrella": "stay dry in the rain",
    "a lamp": "make light", "a bucket": "carry water", "a map": "find the way",
    "a kettle": "boil water", "a ladder": "climb up high", "a spade": "dig a hole",
    "a brush": "paint a wall", "a bell": "call people", "a boat": "cross the water",
    "a blanket": "keep warm",
}  # fmt: skip
SHAPES: dict[str, str] = {
    "triangle": "three", "square": "four", "circle": "no", "pentagon": "five", "hexagon": "six",
}  # fmt: skip
SENSES: dict[str, str] = {
    "see": "eyes", "hear": "ears", "smell": "nose", "taste": "tongue", "think": "brain",
    "walk": "legs", "hold things": "hands", "bite": "teeth",
}  # fmt: skip
