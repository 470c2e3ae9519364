# SPDX-License-Identifier: Apache-2.0
"""Takes ``[compute_agent] signing`` and its keys over, at start and at SIGHUP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.signing import Keyring, Signer, Signing, parse_keyring

OPTION = "[compute_agent] signing_keys_file"


def load_keys(conf: Any, signer: Signer) -> None:
    """Give ``signer`` the mode and the keys that are configured now.

    Raises ``KeyringError``, which names option and file and holds no secret; the signer stays as it was.
    """
    mode = Signing(conf.compute_agent.signing)
    keyring = None if mode is Signing.OFF else _read(mode, conf.compute_agent.signing_keys_file)
    signer.replace(mode, keyring)


def _read(mode: Signing, file: str) -> Keyring:
    if not file:
        raise KeyringError(f"not set, and signing = {mode} needs keys", OPTION)
    where = f"{OPTION} = {file}"
    try:
        return parse_keyring(Path(file).read_text())
    except OSError as error:
        raise KeyringError(f"cannot be read: {error.strerror or error}", where) from error
    except UnicodeDecodeError as error:
        raise KeyringError("not a text", where) from error
    except KeyringError as error:
        raise KeyringError(error.what, f"{where}: {error.where}", error.remedy) from None
