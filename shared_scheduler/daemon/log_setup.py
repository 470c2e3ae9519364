# SPDX-License-Identifier: Apache-2.0
"""The log of a program, whose errors at the start an operator can correct."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oslo_log import log

#: Errors of a file that only an operator can remove; others, of a full disk for example, may end by themselves.
WRONG_PLACE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
#: Those of them that have no class of their own.
WRONG_PLACE_NUMBERS = frozenset({errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG})


class LogError(Exception):
    """The log cannot be written as configured: one line with the reason."""


class LogUnavailableError(LogError):
    """It cannot be written at present."""


def set_up(conf: Any, product: str) -> None:
    """Write the log as the configuration says.

    :raises LogError: when it cannot be written (``LogUnavailableError``: at present)
    """
    with explained():
        log.setup(conf, product)


@contextmanager
def explained() -> Iterator[None]:
    """Convert the errors of oslo.log and of Python's logging."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError, log.LogConfigError) as error:
        logging.getLogger().handlers.clear()  # it is set up in part
        kind = LogUnavailableError if _may_end(error) else LogError
        raise kind(
            "the log cannot be written as the options of [DEFAULT] say (log_dir, log_file, log_config_append, "
            f"default_log_levels, use_syslog): {' '.join(str(error).split())}"
        ) from error


def _may_end(error: Exception) -> bool:
    """Whether the error may end by itself."""
    if not isinstance(error, OSError) or isinstance(error, WRONG_PLACE):
        return False
    return error.errno not in WRONG_PLACE_NUMBERS
