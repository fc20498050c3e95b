"""Which chat template a model is asked by: the operator's, or one of the file's."""

from __future__ import annotations

from worker import log
from worker.api.intake.facts import ModelFacts
from worker.chat.format import ChatFormat
from worker.chat.probe import TemplateProbe
from worker.chat.template import TEMPLATES, ChatTemplate
from worker.errors import RequestError
from worker.model.tokenizer import TokenizerConfig
from worker.settings import Settings

_log = log.get("talk")
# Named templates of files -> what they are for.
WITH_TOOLS, WITH_DOCUMENTS = "tool_use", "rag"


def source_of(tokenizer: TokenizerConfig | None, settings: Settings) -> str | None:
    """The template's text; None: there is none.

    `--chat-template-file` counts before `--chat-template`, which is the name of one of the file's
    templates, of one of ours, or the template itself.
    """
    if settings.chat_template_file is not None:
        return settings.chat_template_file
    asked = settings.chat_template
    named = tokenizer.chat_templates if tokenizer else {}
    if asked is not None and "{" not in asked:
        return {**TEMPLATES, **named}[asked]  # one of them, as the load has checked
    if asked is not None:
        return asked
    plain = tokenizer.chat_template if tokenizer else None
    return plain or next(iter(named.values()), None)


def sources_of(tokenizer: TokenizerConfig | None, settings: Settings) -> dict[str, str]:
    """The templates that chats are written by: the file's named ones, where none was asked for, and
    the others' under an empty name, which comes first. Empty: there is none."""
    source = source_of(tokenizer, settings)
    if not source:
        return {}
    is_asked = settings.chat_template is not None or settings.chat_template_file is not None
    others = tokenizer.chat_templates if tokenizer and not is_asked else {}
    used = {name: others[name] for name in (WITH_TOOLS, WITH_DOCUMENTS) if name in others}
    return {"": source, **{name: text for name, text in used.items() if text != source}}


def log_template_failures(tokenizer: TokenizerConfig | None, settings: Settings) -> None:
    """Log why no chat can be rendered by the templates that are used, or not each one."""
    for text in sources_of(tokenizer, settings).values():
        try:
            template = ChatTemplate(text, bos="<s>", eos="</s>")
        except RequestError as error:
            _log.warning("the chat template cannot be used", why=error.message)
            continue
        if why := TemplateProbe(template).failure:
            _log.warning("no chat can be rendered by the chat template", why=why)
        elif template.unknown:
            _log.warning(
                "the chat template fails if it reaches an unknown name",
                unknown=", ".join(template.unknown),
            )


def has_template(facts: ModelFacts) -> bool:
    """Whether chats can be asked."""
    return bool(sources_of(facts.config.tokenizer, facts.settings))


def format_of(facts: ModelFacts) -> ChatFormat:
    """The model's chat format. Raises RequestError where there is no template."""
    settings = facts.settings
    sources = sources_of(facts.config.tokenizer, settings)
    if not sources:
        raise RequestError(
            "This model's file has no chat template: it continues text.",
            param="messages",
            hint="Use /v1/completions, or start the worker with --chat-template.",
            code="no_chat_template",
        )
    vocab = facts.vocab
    ends = [vocab.name(end) for end in vocab.end_tokens]

    def chat_format(text: str, **named: ChatFormat) -> ChatFormat:
        template = ChatTemplate(text, bos=vocab.bos_name, eos=vocab.eos_name)
        return ChatFormat(
            template, vocab.controls, ends, defaults=settings.chat_template_kwargs, named=named
        )

    return chat_format(
        sources.pop(""), **{name: chat_format(text) for name, text in sources.items()}
    )
