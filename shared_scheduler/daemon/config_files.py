# SPDX-License-Identifier: Apache-2.0
"""Errors of configuration files, in the words of an operator.

oslo.config does not raise all of them as its own (a directory, no text in UTF-8), and checks a value when it is read.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg

#: a local variable of oslo.config's function that reads a file; an error of decoding does not name the file
READ = "config_file"
#: how oslo.config tells where a value was set
LOCATION = re.compile(r"LocationInfo\(location=.*, detail='(.*?)'\)")


@contextmanager
def unreadable_named() -> Iterator[None]:
    """Raise the error of a file that oslo.config cannot read as one of its own, with the name of the file.

    :raises cfg.Error: when a file cannot be read
    """
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        files = [frame.f_locals[READ] for frame, _ in traceback.walk_tb(error.__traceback__) if READ in frame.f_locals]
        if not files:
            raise
        raise cfg.Error(f"{files[-1]}: {error.strerror if isinstance(error, OSError) else error}") from error


def check_values(values: Any, group: str, options: Iterable[cfg.Opt]) -> None:
    """Read each option of a group, because a wrong value is an error only then.

    ``values``: the group of a configuration.

    :raises cfg.Error: when a value is not allowed
    """
    for option in options:
        try:
            getattr(values, option.dest)
        except (cfg.Error, ValueError) as error:
            text = LOCATION.sub(r"\1", str(error))
            raise cfg.Error(f"[{group}] {text}") from error
