"""Chat templates: what they may use, and attacks that must fail."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from tests.support.cases import for_each
from worker.chat.jinja import sandbox
from worker.chat.template import ChatTemplate
from worker.errors import RequestError
from worker.limits import MADE, RANGE

MESSAGES = [{"role": "user", "content": " Héllo "}, {"role": "assistant", "content": "yes"}]
LINES = (
    "{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}</{{ m.role }}>\n{% endfor %}"
)


def rendered(source: str, messages: Any = MESSAGES, **variables: Any) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(messages, **variables)


def test_today() -> None:
    """What a client says goes first, then today's date, then the template's own."""
    source = "{% if date_string is not defined %}{% set date_string = 'old' %}{% endif %}"
    source += "{{ date_string }}"
    assert re.fullmatch(r"[0-3][0-9] [A-Z][a-z]+ 20[0-9]{2}", rendered(source))
    assert rendered(source, date_string="May") == "May"


@for_each(
    ("source", "text"),
    [
        (LINES, "<user>Héllo</user>\n<assistant>yes</assistant>\n"),
        ("{{ bos_token ~ messages[-1].content + eos_token }}", "<s>yes</s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": " Héllo "}'),
        ("{{ {'a': [1, 2]} | tojson(indent=1) }}", '{\n "a": [\n  1,\n  2\n ]\n}'),
        ("{{ messages | map(attribute='role') | tojson }}", '["user", "assistant"]'),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ ', '.join(['a', 'b']) + 'x y'.split()[1].replace('y', 'yy') }}", "a, byy"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 2 %}"
         "{% endfor %}{{ ns.n * 3 % 5 }}", "2"),
        ("{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
         "user"),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}", "abab"),
        ("{{ '<{}|{a}>'.format('x', a=messages[1].content) }}", "<x|yes>"),
        ("{% generation %}marked{% endgeneration %}", "marked"),
        ("{{ strftime_now('%%') }}", "%"),
        ("{{ tools is defined and tools is none }}", "True"),
        ("{{ messages[0].tool_calls is defined }}", "False"),
        ("{% set x = [] %}{% for m in messages %}{{ x.append(m.role) }}{% endfor %}{{ x[1] }}",
         "NoneNoneassistant"),
        ("{% if false %}{{ messages | nosuch }}{{ 1 is nosuch }}{% endif %}ok", "ok"),
    ],
)  # fmt: skip
def test_what_templates_use(source: str, text: str) -> None:
    """The things that chat templates are made of."""
    assert rendered(source, tools=None) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['sys'] }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages | map(attribute='__class__') | map(attribute='__mro__') | list }}",
        "{{ messages.append(1) }}",
        "{{ self._TemplateReference__context.eval_ctx.environment.loader.x }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ cycler.__init__.x }}",
        "{{ ('x' | attr('__class__')).x }}",
        "{{ 'x' | attr('__class__') | attr('x') }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
    ],
)
def test_no_way_to_python(source: str) -> None:
    """A template that reaches for Python is refused."""
    with pytest.raises(RequestError, match="chat template") as caught:
        rendered(source)
    assert caught.value.param == "messages"


def growing(step: str) -> str:
    """A template that doubles what it has again and again."""
    return (
        "{% set ns = namespace(x='aaaaaaaa', l=['a'], m=['a']) %}"
        "{% macro keep() %}{% set ns.l = varargs %}{% endmacro %}"
        f"{{% for i in range(64) %}}{step}{{% endfor %}}{{{{ ns.l == ns.m }}}}"
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}"
        "{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}" + "x" * 50_000 + "{% endfor %}"
        "{% endfor %}",
        "{{ range(100000000) | list }}",
        "{{ 'x' * 1000000000 }}",
        "{{ ['x'] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 1.5 | round(100000000, 'ceil') }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%.1000000000f' | format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ '{:{0}}'.format('1000000000') }}",
        "{{ '{x:{y}}'.format_map({'x': 1, 'y': 999999999}) }}",
        "{{ 1000000000 * 'x' }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{{ 'x'.expandtabs(tabsize=3) }}{{ '\\t'.expandtabs(tabsize=1000000000) }}",
        "{{ '\t'.expandtabs(1000000000) }}",
        "{{ ('a' * 9999).translate({97: 'b' * 9999}) }}",
        "{{ [1] | batch(1000000000) | list }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ ('a\n' * 9999) | indent(9999) }}",
        "{{ ('a ' * 9999) | wordwrap(1, wrapstring='b' * 9999) }}",
        "{{ 'x' * 99 | truncate(9, end='y' * 99999999) }}",
        "{{ lipsum(n=1000000000) }}",
        "{{ ('<a>' * 999999) | striptags }}",
        "{{ [['x'] * 999999] | tojson(indent=9999) }}",
        "{{ [1] * 99999 | tojson(separators=('x' * 9999, ':')) }}",
        growing("{% set ns.x = ns.x * 2 %}"),
        growing("{% set ns.l = ns.l * 2 %}"),
        growing("{% set y = [] %}{{ [y.append(ns.l), y.append(ns.l)] }}{% set ns.l = y %}"),
        growing("{{ ns.l.append('a' * 1000000) }}"),
        growing("{{ ns.l.append(ns.l) }}"),
        growing("{{ ns.l.append({'a': [(ns.l, 1)]}) }}"),
        growing("{% set ns.l = [ns.l, ns.l] | sum(start=[]) %}"),
        growing("{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% for x in %}",
        "{{ messages | nosuch }}",
        growing("{% set ns.x = ns.x ~ ns.x %}"),
        growing("{% set ns.x = ns.x + ns.x %}"),
        growing("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
        growing("{% set ns.x = ns.x | replace('a', 'aa') %}"),
        growing("{% set ns.x = ns.x.replace('', 'aa') %}"),
        growing("{% set ns.x = [ns.x, ns.x] | join %}"),
        growing("{% set ns.x = ns.x.join(['a', 'a', ns.x]) %}"),
        growing("{% set ns.x = '{0}{0}'.format(ns.x) %}"),
        growing("{% set ns.l = ns.l + ns.l %}"),
        growing("{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}"),
        growing("{% set ns.l = (ns.l, ns.l) %}{% set ns.m = (ns.m, ns.m) %}"),
        growing("{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% set ns.m = {'a': ns.m, 'b': ns.m} %}"),
        growing("{% set ns.l = dict(a=ns.l, b=ns.l) %}{% set ns.m = dict(a=ns.m, b=ns.m) %}"),
        growing("{{ keep(ns.l, ns.l) }}"),
        "{% set ns = namespace(n=7) %}{% for i in range(64) %}{% set ns.n = ns.n * ns.n %}"
        "{% endfor %}",
    ],
)
def test_no_template_takes_for_ever(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless and exploding templates end with an error; so does what is no template."""
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.3)
    with pytest.raises(RequestError, match="chat template"):
        rendered(source)


@pytest.mark.parametrize(
    "asked", ["messages | length", "messages | list | count", "last(messages)"]
)
def test_a_long_conversation(asked: str) -> None:
    """A template may ask in each turn how many there are, or hand them to a macro."""
    source = (
        "{% macro last(all) %}{{ all[-1].content[:1] }}{% endmacro %}"
        f"{{% for message in messages %}}{{% set _ = {asked} %}}"
        "{{ message.content }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 2000}] * 500
    template = ChatTemplate(source, bos="", eos="")
    assert template.render(messages) == "x" * 2000 * 500


GROWS = "{% set ns = namespace(x='') %}{% for i in range(n) %}{% set ns.x = ns.x ~ 'xxxx' %}"


def test_a_text_that_grows() -> None:
    """It is added to in each turn of a long conversation; what it was before is gone."""
    n = RANGE.most
    assert n * n * 2 > 10 * MADE.most
    assert rendered(GROWS + "{% endfor %}{{ ns.x }}", n=n) == "xxxx" * n


@pytest.mark.parametrize(
    "source",
    [
        "{% set l = [] %}" + GROWS + "{{ l.append(ns.x) }}{% endfor %}",
        "{% macro m(ns, x, k) %}{% set ns.x = ns.x ~ 'xxxx' * 8000 %}"
        "{% if k %}{{ m(ns, ns.x, k - 1) }}{% endif %}{% endmacro %}"
        "{{ m(namespace(x=''), '', 99) }}",
        "{% set l = namespace(x='xxxx' * 9999) %}"
        + GROWS
        + "{% set ns.x = l.x ~ 'x' %}{% endfor %}",
    ],
)
def test_texts_that_are_held_count(source: str) -> None:
    """Each of them, wherever it is held."""
    with pytest.raises(RequestError, match="makes too much text"):
        rendered(source, n=RANGE.most)


def test_no_template_makes_too_much() -> None:
    """So many characters are made, and not twice as many."""
    times = 2**12
    half = "{% for i in range(n) %}" + "x" * (MADE.most // times) + "{% endfor %}"
    assert len(rendered(half, n=times)) == MADE.most
    with pytest.raises(RequestError, match="makes too much text"):
        rendered(half, n=2 * times)


def test_a_range_is_bounded() -> None:
    """So many numbers are a range, and not one more."""
    assert rendered("{{ range(n) | length }}", n=RANGE.most) == str(RANGE.most)
    with pytest.raises(RequestError, match="at most 10,000"):
        rendered("{{ range(n) | length }}", n=RANGE.most + 1)


def test_the_next_rendering_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an endless rendering the same template works, in other threads too."""
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.3)
    template = ChatTemplate(
        "{% for a in range(messages[0].n) %}{% for b in range(9999) %}{% endfor %}{% endfor %}ok",
        bos="", eos="",
    )  # fmt: skip
    texts: list[str] = []
    for n in (9999, 1, 9999, 2):
        try:
            texts.append(template.render([{"n": n}]))
        except RequestError as error:
            texts.append(error.message)
    thread = threading.Thread(target=lambda: texts.append(template.render([{"n": 1}])))
    thread.start()
    thread.join(20)
    ends = [text if text == "ok" else "does not come to an end" in text for text in texts]
    assert ends == [True, "ok", True, "ok", "ok"]


def test_what_the_template_has_against_the_messages() -> None:
    """The template's own reason reaches the client."""
    source = "{{ raise_exception('Roles must alternate.') }}"
    with pytest.raises(RequestError, match=r"refuses these messages: Roles must alternate\."):
        rendered(source)


def test_long_conversations_pass() -> None:
    """The limits grow with the size of the messages."""
    messages = [{"role": "user", "content": "word " * 20_000}] * 100
    source = "{% set ns = namespace(t='') %}" + LINES + "{{ messages | tojson | length }}"
    assert len(rendered(source, messages)) > 100 * 99_999
