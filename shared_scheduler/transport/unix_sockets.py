# SPDX-License-Identifier: Apache-2.0
"""Removes socket files: before another socket is bound to the path, and when the process that bound it stops."""

from __future__ import annotations

import errno
import logging
import os
import stat

LOG = logging.getLogger(__name__)


def remove_socket(path: str | os.PathLike[str]) -> None:
    """Remove the socket ``path``, if there is one.

    :raises OSError: when it cannot be removed, or is not a socket, which means that an option names a wrong path
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "is not a socket, and is kept", os.fspath(path))
    os.unlink(path)


def remove_own(path: str | os.PathLike[str], bound: os.stat_result) -> None:
    """Remove the socket that this process has bound, before it closes it: what it stops next must not wait for this.

    What another process has put at its path meanwhile is kept.  ``bound``: what ``os.lstat`` told after the bind.
    """
    try:
        if os.path.samestat(os.lstat(path), bound):
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        LOG.warning("The socket %s cannot be removed (%s); delete it", os.fspath(path), error.strerror)
