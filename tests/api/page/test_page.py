"""The page at `/`: who gets it, and what its headers forbid."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support import http
from tests.support.programs.processes import Server, serving, starting
from worker.api.page import page

CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7"
)
FOLDER = Path(page.__file__).parent
MARKED = "bb95d4c15f1289f78486eaacebf3bb18688475ed58a040ef762ed49337090542"  # 18.2.1


class Parts(HTMLParser):
    """The tags of a page with their attributes, and the texts of its scripts and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Any tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Any text; a script comes in one piece."""
        if self.tags and self.tags[-1][0] in self.texts and data.strip():
            self.texts[self.tags[-1][0]].append(data)


def kind(server: Server, *accept: str) -> str:
    """The type of what `/` answers."""
    headers = [("accept", value) for value in accept]
    answer = http.get(server.url + "/", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    return answer.headers["content-type"].partition(";")[0]


@pytest.mark.parametrize(
    "accept",
    [
        CHROMIUM,
        "text/html",
        "TEXT/HTML",
        "text/*",
        "text/html;level=1;q=0.5, application/json;q=0.4",
        "application/json;q=0.1, text/html;q=0.2, */*;q=0.9",
        "*/*, application/json;q=0, text/html;q=0.1",
    ],
)
def test_who_wants_html_gets_the_page(server: Server, accept: str) -> None:
    """Browsers, and whoever wants HTML more than JSON."""
    assert kind(server, accept) == "text/html"


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "",
        "application/json",
        "application/json, text/html",
        "text/html;q=0.9, application/*",
        "text/html;q=0, */*",
        "text/html;q=x",
        "text/html;q=nan",
        "text/plain",
        ";;;,=,;q=1",
    ],
)
def test_programs_get_health(server: Server, accept: str) -> None:
    """curl sends `*/*`; where both are as welcome it is JSON, as it always was."""
    assert kind(server, accept) == "application/json"


def test_several_accept_headers(server: Server) -> None:
    """They count as one."""
    assert kind(server, "application/json;q=0.3", "text/html") == "text/html"


def test_only_the_root(server: Server) -> None:
    """The other names of health are JSON for browsers too, and `/` takes no POST."""
    for path in ("/health", "/v1/health", "/livez"):
        answer = http.get(server.url + path, headers={"accept": CHROMIUM})
        assert answer.json()["status"] == "ok"
    assert http.post(server.url + "/", headers={"accept": CHROMIUM}).status_code == 405


def test_head(server: Server) -> None:
    """HEAD has GET's headers and no body."""
    head = http.head(server.url + "/", headers={"accept": CHROMIUM})
    body = http.get(server.url + "/", headers={"accept": CHROMIUM}).content
    assert head.headers["content-type"] == "text/html; charset=utf-8"
    assert (head.headers["content-length"], head.content) == (str(len(body)), b"")


def test_policy(server: Server) -> None:
    """Only the page's own script and style run in it, and it asks nobody but its worker."""
    answer = http.get(server.url + "/", headers={"accept": CHROMIUM})
    parts = Parts(answer.text)
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    for tag, count in {"script": 2, "style": 1}.items():
        assert len(parts.texts[tag]) == count
        digests = [hashlib.sha256(text.encode()).digest() for text in parts.texts[tag]]
        hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        assert policy[f"{tag}-src"].split() == hashes
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["vary"] == "accept"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers


def test_nothing_comes_from_elsewhere() -> None:
    """One document: no tag loads anything, and none has a handler or a style of its own."""
    parts = Parts(page.document()[0].decode())
    for tag, attributes in parts.tags:
        assert not {"src", "style", "action", "srcset"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "data:").startswith("data:")


def test_ids_of_the_page() -> None:
    """Each id is there once, and each that the script or a label names is there."""
    text = page.document()[0].decode()
    parts = Parts(text)
    ids = [attributes["id"] for _, attributes in parts.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'\$\("([^"]+)"\)', text))
    for _, attributes in parts.tags:
        for name in ("for", "aria-labelledby", "aria-describedby", "aria-controls"):
            named |= set((attributes.get(name) or "").split())
    assert len(named) > 30
    assert named <= set(ids)


def test_all_scripts_are_in_the_page() -> None:
    """Each file is a part of the page, and none of them is long."""
    text = page.document()[0].decode()
    files = sorted((FOLDER / "script").glob("*.js"))
    assert len(files) > 5
    for file in files:
        assert file.read_text() in text
        assert len(file.read_text().splitlines()) <= 200


def test_one_module_stores_and_none_reads_html() -> None:
    """Conversations are stored in one place, which never sees the key; texts are text nodes."""
    scripts = {file.stem: file.read_text() for file in (FOLDER / "script").glob("*.js")}
    for word in (
        *("sessionStorage", "cookie", "caches", "document.write", "eval(", "srcdoc"),
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "marked.parse", "marked("),
    ):
        assert not [name for name, text in scripts.items() if word in text]
    for word in ("localStorage", "indexedDB"):
        assert [name for name, text in scripts.items() if word in text] == ["store"]
    assert not re.search(r"\bkey\b", re.sub(r"//.*", "", scripts["store"]))


def test_the_library_is_as_it_was_published() -> None:
    """marked is one known file with its license, and cannot end the script that it stands in."""
    library = (FOLDER / "vendor" / "marked.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() == MARKED
    assert b"MIT License" in library
    assert b"Permission is hereby granted" in (FOLDER / "vendor" / "marked.LICENSE").read_bytes()
    assert b"</script" not in library.lower()
    assert b"<script" not in library.lower()


def test_other_origins(server: Server) -> None:
    """A script from elsewhere gets 403, the page's own origin gets it."""
    for origin in ("https://example.com", "null", "", "http://[::1", server.url + "0"):
        answer = http.get(server.url + "/", headers={"accept": CHROMIUM, "origin": origin})
        assert answer.status_code == 403
        assert answer.json()["error"]["type"] == "permission_error"
    own = {"accept": CHROMIUM, "origin": server.url}
    assert http.get(server.url + "/", headers=own).status_code == 200


def test_with_a_key_and_while_loading(tiny: Path, tmp_path: Path) -> None:
    """The page needs no key and no model; what it asks for needs both."""
    env = {"LOADED": str(tmp_path / "never")}
    options = ("--model", tiny, "--api-key", "hush-hush")
    with starting(*options, env=env, step_seconds=0.02) as server:
        answer = http.get(server.url + "/", headers={"accept": CHROMIUM})
        assert answer.status_code == 200
        assert "<title>gguf-worker</title>" in answer.text
        assert "hush" not in answer.text
        assert http.get(server.url + "/").status_code == 503
        assert http.get(server.url + "/v1/loading/progress").status_code == 401


def test_no_page(tiny: Path) -> None:
    """Without it browsers get health too."""
    with serving("--model", tiny, "-t", "1", "--no-page") as server:
        assert kind(server, CHROMIUM) == "application/json"
