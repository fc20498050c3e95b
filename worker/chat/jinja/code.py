"""The Python that a template becomes."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


class SandboxCode(CodeGenerator):
    """Writes code in which the sandbox joins the texts of `~` and counts what a literal holds.

    A filter or test that nobody knows fails where it is reached: templates name some in branches
    for other programs.
    """

    _growing: nodes.Node | None = None  # what is being assigned to its own first part

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802  (Jinja's names)
        super().visit_Filter(node, frame.soft())

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        super().visit_Test(node, frame.soft())

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:  # noqa: N802
        if _grows(node):
            self._growing = node.node
        super().visit_Assign(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write(f"environment.{'grown' if node is self._growing else 'concat'}((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.counted(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.counted(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.counted(")
        super().visit_Tuple(node, frame)
        self.write(")")


def _grows(node: nodes.Assign) -> bool:
    """Whether it is `ns.text = ns.text ~ ...`."""
    if not isinstance(node.target, nodes.NSRef) or not isinstance(node.node, nodes.Concat):
        return False
    first = node.node.nodes[0]
    return (
        isinstance(first, nodes.Getattr)
        and isinstance(first.node, nodes.Name)
        and (first.node.name, first.attr) == (node.target.name, node.target.attr)
    )
