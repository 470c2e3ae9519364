# SPDX-License-Identifier: Apache-2.0
"""Removes a socket file that no process serves, before another socket is bound to its path."""

from __future__ import annotations

import errno
import os
import stat


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
