"""The story plots of plots.txt, and sentences that fit into any of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Plot:
    """One kind of story as templates; each story fills their slots with other words."""

    title: str
    about: str = ""
    body: list[str] = field(default_factory=list[str])
    questions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def read(path: Path) -> tuple[Plot, ...]:
    """Read the plots; the first lines of the file explain its form."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            lines[-1] += " " + line.strip()
        elif line and not line.startswith("#"):
            lines.append(line)
    plots: list[Plot] = []
    question = ""
    for line in lines:
        text = line[2:].replace("\\n", "\n")
        match line[:2]:
            case "= ":
                plots.append(Plot(text))
            case "~ ":
                plots[-1].about = text
            case "? ":
                question = text
            case "! ":
                plots[-1].questions.append((question, text))
            case _:
                plots[-1].body.append(line.replace("\\n", "\n"))
    return tuple(plots)


PLOTS = read(Path(__file__).with_name("plots.txt"))

INTERLUDES = (
    "@weather.",
    "@sense.",
    "@sense, and {a} looked around.",
    '"@oh," @said {a}.',
    "{a} thought about it for a [while|moment|long time].",
    "{a} felt @very [hungry|thirsty|sleepy|curious|warm|cold|brave].",
    '"What is that?" @said {a}. It was only a [bird|leaf|cloud|cat|shadow|mouse|branch].',
    "{a} sat down on a [stone|bench|log|wall] and ate some {food2}.",
    "{Ahe} did not know what to [do|say|think].",
    "{a} counted to [three|five|ten] and took a deep breath.",
    '"[Are you sure|Is it far|Is that true|Can you see it|Do you hear that]?" @said {a}.',
)
