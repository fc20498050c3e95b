"""What an agent sends and what is answered: generated, and the same for every server.

A story is one agent's work: 20 tools in the system prompt, turns that read, search, edit and test,
a title that is asked for aside, and one compaction. The answers are prescribed: whatever a server
says, the next turn holds what the story says. Edits repeat most of what was read.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.peers.endpoints import ChatTurn

TURNS = 15
_KINDS = (
    "read", "read", "search", "edit", "test", "read", "edit", "test", "edit", "read",
    "edit", "test", "read", "edit", "say",
)  # fmt: skip
_COMPACTED = 9  # the index of the turn behind which all that was said is summed up
_FILE, _EDITED, _SYSTEM_TOOLS = 7, 3, 20  # functions of a file and of an edit; tools
_NOUNS = (
    "table queue record index reader writer parser token buffer window cursor bucket ledger folder"
    " filter border column layout packet sender driver socket thread worker signal member holder"
    " branch anchor marker number letter phrase corner bridge garden harbor island valley meadow"
    " stream source target result answer option switch button timer delay limit count total share"
    " ratio score level stage phase cycle round block chunk slice piece frame shape point place"
)
_ACTS = (
    "load store parse merge split count check clear fetch build apply trace print align bound hash"
    " match order patch queue reset route share sort start stop sum trim walk wrap"
)
_WORDS, _VERBS = _NOUNS.split(), _ACTS.split()


class Ask(NamedTuple):
    """One request: `kind` is turn, title or compaction; `answer` is what is prescribed."""

    kind: str
    messages: list[ChatTurn]
    answer: str


def story(agent: int, turns: int = TURNS) -> list[Ask]:
    """All that one agent asks up to its last turn. Agents have only the system prompt in common."""
    asks = list(_Agent(agent).work())
    last = [number for number, ask in enumerate(asks) if ask.kind == "turn"][turns - 1]
    return asks[: max(last, 1) + 1]  # the title comes behind the first turn


class _Agent:
    def __init__(self, agent: int) -> None:
        self._agent = agent
        self._rng = random.Random(agent)
        self._asked = 0
        names = [f"{a}_{b}" for a, b in itertools.product(_WORDS, _VERBS)]
        self._names = iter(self._rng.sample(names, len(names)))
        self._files: dict[str, list[str]] = {}

    def work(self) -> Iterator[Ask]:
        tools = [_tool(random.Random(number), number) for number in range(_SYSTEM_TOOLS)]
        system = ChatTurn(
            "system", "\n".join(["you are an agent that edits code with these tools.", *tools])
        )
        task = f"{next(self._names)} stops too soon when {next(self._names)} is empty. mend it."
        messages = [system, ChatTurn("user", f"{task}\n{self._cue()}")]
        for number, kind in enumerate(_KINDS):
            answer, result = self._turn(kind)
            yield Ask("turn", messages, answer)
            if not number:
                yield self._title(task)
            messages = [
                *messages,
                ChatTurn("assistant", answer),
                ChatTurn("user", f"{result}\n{self._cue()}"),
            ]
            if number == _COMPACTED:
                yield (asked := self._compaction(messages[:-1]))
                last = f"{task}\nso far: {asked.answer}\n{result}\n{self._cue()}"
                messages = [system, ChatTurn("user", last)]

    def _cue(self) -> str:
        """Ends each request: by its word, a reciting model knows which answer is wanted."""
        self._asked += 1
        return f"ticket {_cue_of(self._agent, self._asked)}"

    def _title(self, task: str) -> Ask:
        asked = f"write a title of at most six words.\n{task}\n{self._cue()}"
        messages = [ChatTurn("system", "you name conversations."), ChatTurn("user", asked)]
        return Ask("title", messages, f"mend the {next(self._names)}")

    def _compaction(self, messages: list[ChatTurn]) -> Ask:
        said = [f"{path} has {self._said(lines)}." for path, lines in self._files.items()]
        asked = ChatTurn("user", f"sum up what was done, for one who goes on.\n{self._cue()}")
        return Ask("compaction", [*messages, asked], " ".join([*said, self._prose(4)]))

    def _said(self, lines: list[str]) -> str:
        heads = [line.split()[1].partition("(")[0] for line in lines if line.startswith("def ")]
        return ", ".join(heads)

    def _turn(self, kind: str) -> tuple[str, str]:
        """What the agent says in a turn, and what comes of it."""
        rng = self._rng
        if kind == "say":
            return self._prose(5), "thank you."
        if kind == "test":
            failed = [f"failed test_{next(self._names)}: {self._prose(1)}" for _ in range(6)]
            return _call(self._prose(1), "run_tests", path="tests"), "\n".join(failed)
        if kind == "search":
            lines = [(path, line) for path, file in self._files.items() for line in file if line]
            found = "\n".join(f"{path}: {line}" for path, line in rng.sample(lines, 15))
            return _call(self._prose(1), "search_text", text=next(self._names)), found
        if kind == "read":
            path = f"src/{next(self._names)}.py"
            self._files[path] = [line for _ in range(_FILE) for line in self._function()]
            return _call(self._prose(1), "read_file", path=path), "\n".join(self._files[path])
        path = list(self._files)[-1]
        lines = self._files[path]
        heads = [i for i, line in enumerate(lines) if line.startswith("def ")]
        first = heads[rng.randrange(len(heads) - _EDITED)]
        last = heads[heads.index(first) + _EDITED]
        for changed in rng.sample(range(first + 1, last - 1), 2):
            if lines[changed]:
                lines[changed] = f"  {next(self._names)} = {next(self._names)}({next(self._names)})"
        text = "\n".join(lines[first:last])
        said = _call(self._prose(1), "write_lines", path=path, first=first, last=last, text=text)
        return said, f"written: {path}"

    def _function(self) -> list[str]:
        a, b, c, d = itertools.islice(self._names, 4)
        return [
            f"def {a}(self, {b}):",
            f"  {c} = self.{d}({b})",
            f"  if {c} < {next(self._names)}: return {next(self._names)}",
            f"  {next(self._names)}({c}, {b})",
            f"  return {c}",
            "",
        ]

    def _prose(self, sentences: int) -> str:
        said = [
            f"the {next(self._names)} must {self._rng.choice(_VERBS)} the {next(self._names)}"
            f" before the {next(self._names)}."
            for _ in range(sentences)
        ]
        return " ".join(said)


def _cue_of(agent: int, number: int) -> str:
    """A word that stands nowhere else."""
    first, second = divmod(20 * agent + number, 20)
    return "jqxz"[first] + "bcdfghjklmnpqrstvwxz"[second]


def _tool(rng: random.Random, number: int) -> str:
    name = f"{rng.choice(_VERBS)}_{_WORDS[number]}"
    fields = ", ".join(f'"{word}": {{"type": "string"}}' for word in rng.sample(_WORDS, 3))
    does = " ".join(rng.choices(_WORDS, k=8))
    return (
        f'{{"name": "{name}", "description": "{does}", "parameters": '
        f'{{"type": "object", "properties": {{{fields}}}}}}}'
    )


def _call(said: str, name: str, **arguments: object) -> str:
    """A call as coding models write it: values stand as they are, so code is copied as it was."""
    values = [f"<parameter={key}>\n{value}\n</parameter>" for key, value in arguments.items()]
    return "\n".join(
        [said, "<tool_call>", f"<function={name}>", *values, "</function>", "</tool_call>"]
    )
