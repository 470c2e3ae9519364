# SPDX-License-Identifier: Apache-2.0
"""Sphinx directives that take what a page shows from the code: terms, help of commands, invariants,
what is read."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from shared_scheduler.answers import terms
from shared_scheduler.cmd import manage
from shared_scheduler.sim import invariants
from shared_scheduler.sync import read_registry
from shared_scheduler.sync.read_registry import SOURCES


class TermGroups(Directive):
    """``.. term-groups::``: a section for each group of ``shared_scheduler.answers.terms``."""

    def run(self) -> list[nodes.Node]:
        """Title, where the terms are printed, and a definition list."""
        return [self._section(group) for group in terms.GROUPS]

    def _section(self, group: terms.TermGroup) -> nodes.Node:
        section = nodes.section(ids=[nodes.make_id(group.title)])
        section += nodes.title(text=group.title)
        section += nodes.paragraph(text=group.where)
        lines = [line for name, meaning in group.terms.items() for line in (f"``{name}``", f"    {meaning}")]
        self.state.nested_parse(StringList(lines, terms.__name__), self.content_offset, section)
        return section


class CommandHelp(Directive):
    """``.. command-help:: NAME``: what ``shared-scheduler-manage NAME --help`` prints, without the terms."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One literal block."""
        name = self.arguments[0]
        parser = manage.parser_of(name, manage.command_of(name))
        parser.epilog = None
        text = parser.format_help()
        return [nodes.literal_block(text, text, language="text")]


class Invariants(Directive):
    """``.. invariants:: WHILE_IT_RUNS`` or ``AT_REST``: their names and sentences."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """A definition list."""
        found: dict[str, str] = getattr(invariants, self.arguments[0])
        shown = nodes.container()
        lines = [line for name, sentence in found.items() for line in (f"``{name}``", f"    {sentence}")]
        self.state.nested_parse(StringList(lines, invariants.__name__), self.content_offset, shown)
        return list(shown.children)


class ReadSources(Directive):
    """``.. read-sources::``: the registry ``shared_scheduler.sync.read_registry``, one row a source."""

    def run(self) -> list[nodes.Node]:
        """A list table."""
        head = ("source", "what is read", "of", "key", "read every", "also because of", "a decision waits",
                "a refusal waits", "one read costs")  # fmt: skip
        rows = [head, *map(self._row, SOURCES)]
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for row in rows:
            lines += [f"   {'* - ' if index == 0 else '  - '}{cell}" for index, cell in enumerate(row)]
        shown = nodes.container()
        self.state.nested_parse(StringList(lines, read_registry.__name__), self.content_offset, shown)
        return list(shown.children)

    @staticmethod
    def _row(source: read_registry.Source) -> tuple[str, ...]:
        every = "" if source.poll_s is None else f"{source.poll_s:g} s"
        option = f" (``{source.option}``)" if source.option else ""
        return (source.name, source.what, source.authority.value, source.key.value, every + option, source.triggers,
                source.decision.value, source.refusal.value, source.cost)  # fmt: skip


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("term-groups", TermGroups)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("invariants", Invariants)
    app.add_directive("read-sources", ReadSources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
