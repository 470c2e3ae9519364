# SPDX-License-Identifier: Apache-2.0
"""The text of `tools/lab SUB --help`: what a subcommand does, what it needs, how long it takes, and its exit codes."""

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 110
EXIT_CODES = (
    "0    success",
    "1    failure, or a check failed: one line on standard error gives the reason",
    "2    the command line is not valid",
    "130  interrupted (Control-C); 143 and 129: ended by SIGTERM or SIGHUP. All started processes are stopped",
)


@dataclass(frozen=True)
class Manual:
    """The manual of one subcommand: paragraphs of prose; each example is a command line and its purpose."""

    does: str
    needs: str
    lasts: str
    examples: Sequence[tuple[str, str]]
    wrong: str = ""
    """Other reasons for the exit code 1."""

    def parser(self, program: str) -> argparse.ArgumentParser:
        """A parser that prints this manual for `--help`."""
        return argparse.ArgumentParser(
            prog=program, description=textwrap.fill(self.does, WIDTH), epilog=self.text(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def text(self) -> str:
        """The text after the options."""
        width = max(len(command) for command, _ in self.examples)
        examples = [f"{command:{width}}  # {purpose}" for command, purpose in self.examples]
        codes = [*EXIT_CODES[:2], *([f"     also: {self.wrong}"] if self.wrong else []), *EXIT_CODES[2:]]
        parts = {
            "needs": textwrap.wrap(self.needs, WIDTH), "how long it takes": textwrap.wrap(self.lasts, WIDTH),
            "examples": examples, "exit codes": codes,
        }  # fmt: skip
        return "\n\n".join("\n  ".join([f"{name}:", *lines]) for name, lines in parts.items())
