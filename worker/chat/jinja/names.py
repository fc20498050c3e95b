"""What a template names, and whether anybody knows it."""

from __future__ import annotations

from jinja2 import Environment, nodes

_OF_JINJA = ("caller", "loop", "super")  # functions that are defined in their places


def unknown(environment: Environment, source: str) -> tuple[str, ...]:
    """Filters, tests and functions that the template names and that are not here; it fails where
    it reaches one. Raises TemplateSyntaxError."""
    tree = environment.parse(source)
    found = [
        f"filter {node.name}"
        for node in tree.find_all(nodes.Filter)
        if node.name not in environment.filters
    ]
    found += [
        f"test {node.name}"
        for node in tree.find_all(nodes.Test)
        if node.name not in environment.tests
    ]
    known = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    known |= {node.name for node in tree.find_all(nodes.Macro)}
    known |= {*environment.globals, *_OF_JINJA}
    found += [
        f"function {node.node.name}"
        for node in tree.find_all(nodes.Call)
        if isinstance(node.node, nodes.Name) and node.node.name not in known
    ]
    return tuple(dict.fromkeys(found))


def read(environment: Environment, source: str) -> frozenset[str]:
    """All names that the template reads. Raises TemplateSyntaxError."""
    found = environment.parse(source).find_all(nodes.Name)
    return frozenset(node.name for node in found if node.ctx == "load")
