# SPDX-License-Identifier: Apache-2.0
"""The options for signing and their keys, for agents and schedulers, read at start and at SIGHUP."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from oslo_config import cfg

from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.signing import Keyring, Signer, Signing, parse_keyring

#: the options of both programs, which have them in different groups
SIGNING = [
    cfg.StrOpt(
        "signing",
        default="off",
        mutable=True,
        choices=[
            ("off", "messages are not signed, and signatures are not checked"),
            ("warn", "messages are signed; messages without a valid signature are accepted and counted"),
            ("enforce", "messages are signed; messages without a valid signature are dropped"),
        ],
        help=(
            "Whether messages between schedulers and agents are signed. Use the same value on both sides. To change "
            "from off to enforce, use warn in between. With off, only the users and permissions of the broker protect "
            "the messages."
        ),
    ),
    cfg.StrOpt(
        "signing_keys_file",
        default="",
        mutable=True,
        help=(
            "File with the keys for ``signing``, one ``key-id:hex-secret`` per line; the first key signs. The file "
            "must be the same on all scheduler hosts and computes and readable for the service only. It is read again "
            "on SIGHUP."
        ),
    ),
]


def load_keys(conf: Any, signer: Signer) -> None:
    """Set the configured mode and keys in ``signer``.

    :raises KeyringError: when the keys cannot be used; the text names option and file and contains no secret, and
        the signer is not changed
    """
    signer.replace(*configured_keys(conf.compute_agent, "compute_agent"))


def configured_keys(options: Any, group: str) -> tuple[Signing, Keyring | None]:
    """The mode and the keys in ``options``, the options of ``[group]``.

    :raises KeyringError: when the keys cannot be used; the text names option and file and contains no secret
    """
    mode = Signing(options.signing)
    option = f"[{group}] signing_keys_file"
    return mode, None if mode is Signing.OFF else _read(mode, options.signing_keys_file, option)


def _read(mode: Signing, file: str, option: str) -> Keyring:
    if not file:
        raise KeyringError(f"not set, and signing = {mode} needs keys", option)
    where = f"{option} = {file}"
    try:
        if Path(file).stat().st_mode & stat.S_IWOTH:
            raise KeyringError("any user of this machine may write it", where, f"chmod o-rwx {file}, create new keys")
        return parse_keyring(Path(file).read_text())
    except OSError as error:
        raise KeyringError(f"cannot be read: {error.strerror or error}", where) from error
    except UnicodeDecodeError as error:
        raise KeyringError("is not a text file", where) from error
    except KeyringError as error:
        at = where if error.where == where else f"{where}: {error.where}"
        raise KeyringError(error.what, at, error.remedy) from None
