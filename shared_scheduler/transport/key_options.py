# SPDX-License-Identifier: Apache-2.0
"""The options for signing and host keys, for agents and schedulers, read at start and at SIGHUP."""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from oslo_config import cfg

from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import AgentKeys, HostKeys, HostKeysMode, MasterKeys, parse_agent_keys
from shared_scheduler.protocol.signing import Keyring, Signer, Signing, parse_keyring

T = TypeVar("T")

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
    cfg.StrOpt(
        "host_keys",
        default="off",
        mutable=True,
        choices=[
            ("off", "the sender of a message is not verified"),
            ("accept", "messages name their sender; messages of unknown senders are accepted and counted"),
            ("require", "messages name their sender; messages of unknown senders are dropped"),
        ],
        help=(
            "Whether the sender of each message is verified, so that a compromised compute can speak for itself only. "
            "Set accept on all schedulers and computes before require. Works with any value of ``signing``, which "
            "should be off when all use require. With off, a program that can write to the broker can send messages "
            "for any node."
        ),
    ),
    cfg.StrOpt(
        "host_keys_file",
        default="",
        mutable=True,
        help=(
            "File with the keys for ``host_keys``: on schedulers the master, on a compute the keys of its host, both "
            "from ``shared-scheduler-manage keys``. Readable for the service only. It is read again on SIGHUP."
        ),
    ),
]

#: who may not access the file of host keys
OTHERS = stat.S_IRWXO | stat.S_IWGRP


def load_keys(conf: Any, signer: Signer, host_keys: HostKeys) -> None:
    """Set the configured modes and keys of an agent.

    :raises KeyringError: when the keys cannot be used; the text names option and file and contains no secret, and
        nothing is changed
    """
    of_host = configured_host_keys(conf.compute_agent, "compute_agent", conf.host)
    signer.replace(*configured_keys(conf.compute_agent, "compute_agent"))
    host_keys.replace(*of_host)


def new_host_keys() -> HostKeys:
    """Host keys with the clock of this machine, and mode off until ``replace``."""
    return HostKeys(now_ms=lambda: int(time.time() * 1000), lock=threading.Lock())


def configured_host_keys(
    options: Any, group: str, host: str = ""
) -> tuple[HostKeysMode, AgentKeys | MasterKeys | None]:
    """The mode and the keys in ``options``: those of ``host``, or the masters of a scheduler if it is empty.

    :raises KeyringError: when the keys cannot be used; the text names option and file and contains no secret
    """
    mode = HostKeysMode(options.host_keys)
    if mode is HostKeysMode.OFF:
        return mode, None
    text = _text_of(f"host_keys = {mode}", options.host_keys_file, f"[{group}] host_keys_file", OTHERS)
    where = f"[{group}] host_keys_file = {options.host_keys_file}"
    return mode, _parsed(where, lambda: parse_agent_keys(text, host) if host else MasterKeys(parse_keyring(text)))


def configured_keys(options: Any, group: str) -> tuple[Signing, Keyring | None]:
    """The mode and the keys in ``options``, the options of ``[group]``.

    :raises KeyringError: when the keys cannot be used; the text names option and file and contains no secret
    """
    mode, file = Signing(options.signing), options.signing_keys_file
    option = f"[{group}] signing_keys_file"
    if mode is Signing.OFF:
        return mode, None
    text = _text_of(f"signing = {mode}", file, option, stat.S_IWOTH)
    return mode, _parsed(f"{option} = {file}", lambda: parse_keyring(text))


def _text_of(mode: str, file: str, option: str, forbidden: int) -> str:
    if not file:
        raise KeyringError(f"not set, and {mode} needs keys", option)
    where = f"{option} = {file}"
    try:
        if Path(file).stat().st_mode & forbidden:
            read = "read or " if forbidden & stat.S_IROTH else ""
            what = f"any user of this machine may {read}write it"
            raise KeyringError(what, where, f"chmod o-rwx,g-w {file}, create new keys")
        return Path(file).read_text()
    except OSError as error:
        raise KeyringError(f"cannot be read: {error.strerror or error}", where) from error
    except UnicodeDecodeError as error:
        raise KeyringError("is not a text file", where) from error


def _parsed(where: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except KeyringError as error:
        raise KeyringError(error.what, f"{where}: {error.where}", error.remedy) from None
