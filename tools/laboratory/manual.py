# SPDX-License-Identifier: Apache-2.0
"""What `tools/lab SUB --help` tells: what a subcommand does, what it needs, how long it takes, and how it ends."""

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 110
EXIT_CODES = (
    "0    done, and nothing is wrong",
    "1    it cannot be done, or something is wrong: one line on standard error says what",
    "2    the command line makes no sense",
    "130  interrupted (Control-C); 143 and 129: ended by SIGTERM or SIGHUP. What was started is stopped",
)


@dataclass(frozen=True)
class Manual:
    """The manual of one subcommand: paragraphs of prose; each example is a command line and what it is for."""

    does: str
    needs: str
    lasts: str
    examples: Sequence[tuple[str, str]]
    wrong: str = ""
    """What else makes the exit code 1."""

    def parser(self, program: str) -> argparse.ArgumentParser:
        """A parser that prints this manual for `--help`."""
        return argparse.ArgumentParser(
            prog=program, description=textwrap.fill(self.does, WIDTH), epilog=self.text(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def text(self) -> str:
        """What follows the options."""
        width = max(len(command) for command, _ in self.examples)
        examples = [f"{command:{width}}  # {purpose}" for command, purpose in self.examples]
        codes = [*EXIT_CODES[:2], *([f"     also: {self.wrong}"] if self.wrong else []), *EXIT_CODES[2:]]
        parts = {
            "needs": textwrap.wrap(self.needs, WIDTH), "how long it takes": textwrap.wrap(self.lasts, WIDTH),
            "examples": examples, "exit codes": codes,
        }  # fmt: skip
        return "\n\n".join("\n  ".join([f"{name}:", *lines]) for name, lines in parts.items())
