"""The table of limits that clients meet.

Checks, options, the API description and docs/size-limits.md take them from here, and a test meets
each. Beside them counts what the model, the context and the options allow.
"""

from __future__ import annotations

import msgspec

_WRONG = (400, "invalid_request")
_WRONG_JOB = (400, "INVALID_REQUEST")  # as the original worker said it


class Limit(msgspec.Struct, frozen=True):
    """One limit.

    most    the largest value that is allowed
    of      what is counted, and in which unit
    answer  (status, code) beyond it; None: see `beyond`
    beyond  what happens beyond it, where that is no answer
    flag    the option that sets it for a worker; None: it is fixed
    """

    most: int
    of: str
    answer: tuple[int, str] | None = _WRONG
    beyond: str | None = None
    flag: str | None = None

    @property
    def code(self) -> str:
        """Of the error beyond it."""
        assert self.answer is not None
        return self.answer[1]


_CLOSED = "the connection is closed"
_DROPPED = "the least recently used are dropped; 404 for them"

# Connections
CONNECTIONS = Limit(
    1024,
    "connections, and one more for each request that may run or wait; fewer if the system "
    "allows fewer open files",
    (503, "too_many_connections"),
    "idle connections are closed first",
    "--max-connections",
)
PIPELINED = Limit(16, "requests of a connection that wait for their turn", None, _CLOSED)
# Litestar keeps the last 1,024 paths and query strings.
PATH = Limit(8_192, "bytes of a request's path and query", None, "400 in plain text")
HEADERS = Limit(65_536, "bytes of a request's path and headers", None, "400 in plain text")
# A name's 253 characters (RFC 1035, 2.3.4) and a port. Python keeps the last 128 that it split.
HOST = Limit(260, "characters of the header Host")
RECEIVE = Limit(
    30,
    "seconds for a request's head, and again for its body",
    (408, "timeout"),
    f"without a whole head {_CLOSED}",
    "--receive-timeout",
)
SEND = Limit(
    60,
    "seconds in which a client must read 16 KiB of a waiting answer",
    None,
    _CLOSED,
    "--send-timeout",
)
DROPPED = Limit(
    1024, "MiB of a request that are read after an early answer, such as a 401", None, _CLOSED
)
REQUEST_ID = Limit(
    256, "characters of X-Request-Id and X-Correlation-Id", None, "the worker makes its own"
)

# Bodies
BODY = Limit(16, "MiB of a body", (413, "too_large"), flag="--max-body")
MEDIA_BODY = Limit(
    160,
    "MiB of a body that may have images or audio, if the model has a projector",
    (413, "too_large"),
    flag="--max-media-body",
)
BODIES = Limit(
    256, "MiB of bodies that are arriving, or whose prompt is not ready", (429, "queue_full")
)
# A million empty lists take 150 ms to decode, megabytes of text few.
PARTS = Limit(2**19, "lists, objects and fields of a body of more than 256 KiB", (413, "too_large"))

# Prompts
TOKENIZING = Limit(
    10_000, "milliseconds of CPU time for the tokens of a text", (400, "tokenizer_timeout")
)
TEXT = Limit(2**21, "characters of a text for /tokenize")
TOKENS = Limit(2**21, "tokens for /detokenize")
COUNTED = Limit(
    2**21,
    "characters of a prompt that is too long, whose tokens are counted",
    None,
    "the error's number is extrapolated from them",
)
MESSAGES = Limit(4096, "messages of a conversation")
TOOLS = Limit(1024, "tools")
TEMPLATE = Limit(
    2000, "milliseconds of CPU time of the chat template, and 5 for each message; 6,000 at most"
)
MADE = Limit(2**24, "characters of the chat template's output, and 64 more for each of its input")
RANGE = Limit(10_000, "numbers of a range in the chat template")

# Images and audio
MEDIA = Limit(64, "images and audio files in a request")
PIXELS = Limit(50_000_000, "pixels of an image", (400, "bad_medium"))
SOUND = Limit(1800, "seconds of audio", (400, "bad_medium"))
MEDIUM_TIME = Limit(120, "seconds to encode an image or audio", (400, "bad_medium"))
MEDIUM_MEMORY = Limit(2048, "MiB of memory to encode an image or audio", (400, "bad_medium"))
FETCHED = Limit(20, "MB of images and audio that are fetched for a request", (400, "bad_medium"))
FETCH_TIME = Limit(10, "seconds to fetch them", (400, "bad_medium"))
MEDIA_KEPT = Limit(
    256,
    "MiB of embeddings of images and audio",
    None,
    "the least recently used are dropped, and encoded again",
)
MEDIA_LENT = Limit(
    2,
    "times the cells of the context: embeddings of images and audio whose requests wait or run",
    (429, "queue_full"),
)

# Embeddings
EMBEDDED = Limit(2048, "texts to embed or score")
TOKEN_VECTORS = Limit(16_384, "tokens of a request for an embedding of each token")
ADAPTERS = Limit(8, "adapters that apply at once")

# Decisions
QUESTIONS = Limit(400, "questions of a decision")
OPTIONS = Limit(255, "options of a question")
LEVELS = Limit(10, "levels of a scale")
JSON_DEPTH = Limit(32, "lists and objects in each other in an input_json")
JSON_VALUES = Limit(10_000, "values in an input_json")
JSON_BYTES = Limit(2**18, "bytes of an input_json, written without spaces")

# Answers
SEQUENCES = Limit(128, "continuations: n, best_of, and prompts × best_of")
STOPS = Limit(256, "stop strings")
STOP = Limit(1024, "characters of a stop string")
LOGPROBS = Limit(100, "alternatives of a token")
BIAS = Limit(1_000_000, "added to a logit, or taken from it")
BREAKERS = Limit(16, "sequence breakers of DRY")
BREAKER = Limit(40, "characters of a sequence breaker")
BANNED = Limit(256, "banned phrases")
BANNED_LENGTH = Limit(128, "characters of a banned phrase")

PRIORITY = Limit(100, "a priority; -100 is the lowest number")
# Of lines of batches. At 30 seconds a step they wait for more than eight hours.
BATCH_PRIORITY = 1_000

# Constraints
SCHEMA = Limit(2**20, "characters of a JSON schema, rewritten")
REGEX = Limit(2**19, "characters of a regular expression")
# Where they follow each other compiling takes their square: 5,000 take 0.4 s, 60,000 a minute.
OPTIONAL = Limit(5000, "parts of a regular expression that may be missing: ?, *, {, empty choices")
GRAMMAR = Limit(65_536, "characters of a GBNF grammar")
LARK = Limit(2**22, "characters of the grammar of all tools")
CHOICES = Limit(10_000, "texts of a choice")
ELEMENTS = Limit(20_000, "elements of a GBNF grammar, its repetitions written out")
# Native code recurses over rules in each other: 4,000 take all of its stack.
LARK_PARTS = Limit(1000, "rules, groups and classes of characters of a grammar in Lark")
# Where a text may be each of them a letter costs their square, and more: 60 took a second.
BRANCHES = Limit(64, "alternatives of a rule in Lark, without its different texts")
NESTED = Limit(1000, "nested rules, groups and repetitions of a GBNF grammar")
REPEATS = Limit(1000, "repetitions in a GBNF grammar")
SCHEMA_DEPTH = Limit(64, "nested schemas")
# Native code takes 5 kB of its stack for each.
REFERRED_DEPTH = Limit(250, "nested schemas, with those that they refer to")
SUBSCHEMAS = Limit(20_000, "schemas in a schema, each counted per use")
PATTERNED = Limit(128, "patternProperties of a schema")
# Native code tries all combinations of their halves in one step: 14 take 0.2 s, 26 a day.
PATTERNS = Limit(8, "patterns, formats and lengths for one string")
COUNT = Limit(100_000, "minItems, maxLength and other counts of a schema")
EXACT = Limit(2**53, "numbers of a schema: they become float64")
INTEGER = Limit(2**63 - 1, "whole numbers of a schema: they become int64")
# In units of the last digit: each remainder is a state.
MULTIPLES = Limit(10_000, "sum of the values of multipleOf, as whole numbers")
# Of llguidance; the worst that both allow takes a second.
FUEL = Limit(500_000, "units of llguidance for the regular expressions of a constraint")
SYMBOLS = Limit(30_000, "symbols of a constraint's rules, as llguidance counts them")
# 0.7 kB each. A string with maxLength takes 20 for each token.
LEXER_STATES = Limit(
    100_000, "states of a constraint's lexer", beyond="in a stream the text ends with it"
)
# Where a text may be read in many ways a token costs the cube of it: 1,250 take 0.1 s, 2,000 half a
# second. A chain of as many rules as LARK_PARTS has that many.
WAYS = Limit(
    1250,
    "states of a GBNF or Lark grammar at one place of a text",
    beyond="in a stream the text ends with it",
)
LOOSENING = Limit(
    1000,
    "milliseconds of CPU time for the schemas of all tools",
    None,
    "the others are held as any object",
)
LONG = Limit(8, "requests with slow constraints", (429, "queue_full"))

# What is kept of responses
STORED = Limit(1024, "stored responses", None, _DROPPED)
STORED_BYTES = Limit(64, "MiB of stored responses and their input", None, _DROPPED)

RESUMED = Limit(
    64,
    "MiB of events of streams that can be resumed",
    None,
    "the oldest are dropped; 404 for them",
    "--resume-memory",
)

# Batches
BATCH_LINES = Limit(
    50_000, "lines of a batch", None, "the batch fails with `too_many_lines`", "--batch-lines"
)
BATCH_FILE = Limit(200, "MiB of an uploaded file", (413, "too_large"), flag="--batch-file")
BATCH_FILES = Limit(500, "uploaded files of a key", flag="--batch-files")
KEPT_DAYS = Limit(
    30, "days for which files and batches are kept", None, "they are deleted", "--keep-days"
)

# Jobs
JOB_PROMPT = Limit(32_768, "characters of a job's prompt", _WRONG_JOB)
JOB_STOPS = Limit(4, "stop strings of a job", _WRONG_JOB)
JOB_STOP = Limit(100, "characters of a job's stop string", _WRONG_JOB)
UNREAD = Limit(128, "unread jobs", (429, "QUEUE_FULL"))


def table() -> dict[str, Limit]:
    """Name -> limit, in the order above."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
