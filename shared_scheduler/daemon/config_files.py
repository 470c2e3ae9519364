# SPDX-License-Identifier: Apache-2.0
"""The errors of configuration files that oslo.config does not raise as its own: a directory, no text in UTF-8."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg

#: a local variable of oslo.config's function that reads a file; an error of decoding does not name the file
READ = "config_file"


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
