"""The Python that a template becomes."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


class SandboxCode(CodeGenerator):
    """Writes code in which the sandbox joins the texts of `~` and counts what a literal holds.

    A filter or test that nobody knows fails where it is reached: templates name some in branches
    for other programs.
    """

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802  (Jinja's names)
        super().visit_Filter(node, frame.soft())

    def visit_Test(self, node: nodes.Test, frame: Frame) -> None:  # noqa: N802
        super().visit_Test(node, frame.soft())

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat((")
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
