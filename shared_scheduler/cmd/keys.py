# SPDX-License-Identifier: Apache-2.0
"""Creates, derives and rotates host keys, by which schedulers and agents know who sent a message.

``new`` creates the master, which belongs on the hosts of schedulers only.  ``derive`` writes one file for each compute,
which belongs on that compute only.  ``rotate`` changes the master in steps:

    keys rotate FILE add       schedulers accept the new key too; then: derive, distribute, SIGHUP everywhere
    keys rotate FILE use       schedulers send with the new key; then: distribute, SIGHUP
    keys rotate FILE remove    the old key is not accepted any more; then: derive, distribute, SIGHUP everywhere

All files are written with mode 0600.  ``show`` prints key ids and fingerprints.  Secrets are never printed.  The exit
code is 0, or 2 with one line if a file cannot be read or written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from shared_scheduler.cmd import printed_tables
from shared_scheduler.protocol import limits
from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.protocol.host_keys import agent_line, public_key
from shared_scheduler.protocol.signing import Keyring, parse_keyring
from shared_scheduler.transport.key_options import OTHERS

FAILED = 2
SECRET_BYTES = 32
COLUMNS = ("key", "fingerprint", "used_for")
HEADER = "# Master of the host keys of shared-scheduler.  For schedulers only; never on a compute.\n"
#: the permissions that a replaced master keeps: its owner reads and writes it, its group may read it
READERS = 0o640
#: who may not write the directory of host keys besides its owner
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
HOST_HEADER = "# Host keys of shared-scheduler.  For this host only.\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _action(actions, "new", "create a master")
    derive = _action(actions, "derive", "write the keys of computes")
    derive.add_argument("--host", action="append", default=[], metavar="HOST", help="[DEFAULT] host of a nova-compute")
    derive.add_argument("--hosts", type=Path, metavar="FILE", help="a file with one host per line")
    derive.add_argument("--to", type=Path, required=True, metavar="DIR", help="writes DIR/HOST.keys")
    rotate = _action(actions, "rotate", "change the master in steps")
    rotate.add_argument("step", choices=("add", "use", "remove"))
    show = _action(actions, "show", "print key ids and fingerprints")
    show.add_argument("--format", choices=("text", "json"), default="text")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.add_argument("file", type=Path, metavar="FILE", help="the file with the master")
    return parser


def run(args: argparse.Namespace) -> int:
    """Carry out the action.  Returns the exit code."""
    try:
        {"new": _new, "derive": _derive, "rotate": _rotate, "show": _show}[args.action](args)
    except (KeyringError, UnicodeDecodeError) as error:
        return _fail(f"{args.file}: {error}")
    except OSError as error:
        return _fail(f"{error.filename or args.file}: {error.strerror or error}")
    return 0


def _fail(line: str) -> int:
    print(f"keys: {line}", file=sys.stderr)
    return FAILED


def _new(args: argparse.Namespace) -> None:
    if args.file.exists():
        raise KeyringError("exists", remedy="use 'keys rotate' to change it")
    key_id = _new_id()
    _write(args.file, HEADER + _line(key_id, secrets.token_bytes(SECRET_BYTES)))
    print(f"{args.file}: master {key_id} created; copy it to all hosts of schedulers, then use 'keys derive'")


def _derive(args: argparse.Namespace) -> None:
    listed = args.hosts.read_text().split() if args.hosts else []
    hosts = [*args.host, *listed]
    if not hosts:
        raise KeyringError("no host is named", remedy="use --host or --hosts")
    masters = _masters(args.file)
    wrong = [host for host in hosts if not _is_file_name(host)]
    if wrong:
        raise KeyringError(f"{wrong[0]!r} is not the name of a host", remedy="use the value of [DEFAULT] host")
    args.to.mkdir(mode=0o700, parents=True, exist_ok=True)
    if args.to.stat().st_mode & OTHERS_WRITE:
        raise KeyringError(f"other users may write {args.to}", remedy="name a directory of your own with --to")
    newest_first = sorted(masters.ids, reverse=True)
    for host in hosts:
        lines = [agent_line(key_id, masters[key_id], host) for key_id in newest_first]
        _write(args.to / f"{host}.keys", HOST_HEADER + "\n".join(lines) + "\n")
    print(f"{args.to}: keys of {len(hosts)} hosts written; copy each to its host, then send SIGHUP")


def _is_file_name(host: str) -> bool:
    shown = 1 <= len(os.fsencode(host)) <= limits.HOST_MAX_BYTES and host.isprintable()
    return shown and "/" not in host and not host.startswith(".")


def _rotate(args: argparse.Namespace) -> None:
    masters = _masters(args.file)
    ids = sorted(masters.ids)
    {"add": _add, "use": _use, "remove": _remove}[args.step](args.file, masters, ids)


def _add(file: Path, masters: Masters, ids: Sequence[str]) -> None:
    if len(ids) != 1:
        raise KeyringError(f"{len(ids)} keys; the last rotation has not ended", remedy="use 'keys rotate FILE remove'")
    key_id = _new_id()
    if key_id <= ids[0]:
        raise KeyringError(f"key {ids[0]!r} is not older than {key_id!r}", remedy="correct the clock, try again")
    old = _line(ids[0], masters[ids[0]])
    _write(file, HEADER + old + _line(key_id, secrets.token_bytes(SECRET_BYTES)), file.stat())
    print(f"{file}: {key_id} added; copy the file to all schedulers, send SIGHUP, then derive and distribute the keys "
          "of the computes")  # fmt: skip


def _use(file: Path, masters: Masters, ids: Sequence[str]) -> None:
    if len(ids) == 1:
        raise KeyringError(f"there is one key only, {ids[0]!r}", remedy="use 'keys rotate FILE add' first")
    newest = ids[-1]
    _write(file, HEADER + "".join(_line(each, masters[each]) for each in sorted(ids, reverse=True)), file.stat())
    print(f"{file}: schedulers send with {newest} when they have this file and SIGHUP")


def _remove(file: Path, masters: Masters, ids: Sequence[str]) -> None:
    newest = ids[-1]
    if masters.primary != newest:
        raise KeyringError(f"schedulers send with {masters.primary!r}", remedy="use 'keys rotate FILE use' first")
    _write(file, HEADER + _line(newest, masters[newest]), file.stat())
    print(f"{file}: only {newest} is left; copy the file to all schedulers, send SIGHUP, then derive again")


def _show(args: argparse.Namespace) -> None:
    masters = _masters(args.file)
    rows = [(key_id, _fingerprint(masters[key_id]), "sends and accepts" if key_id == masters.primary else "accepts")
            for key_id in masters.ids]  # fmt: skip
    if args.format == "json":
        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows]))
    else:
        print("\n".join(printed_tables.lines(COLUMNS, rows)))


def _fingerprint(master: bytes) -> str:
    """Of the public key, so that it reveals nothing of the secret."""
    return hashlib.sha256(public_key(master)).hexdigest()[:16]


class Masters:
    """The keys of a master file, in its order; the first one sends."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self.primary = keyring.primary
        self.ids = keyring.ids

    def __getitem__(self, key_id: str) -> bytes:
        found = self._keyring.secret(key_id)
        assert found is not None, "the ids are those of the keyring"
        return found


def _masters(file: Path) -> Masters:
    if file.stat().st_mode & OTHERS:
        raise KeyringError("other users may read or write it", remedy=f"chmod o-rwx,g-w {file}, create a new master")
    return Masters(parse_keyring(file.read_text()))


def _new_id() -> str:
    """Ids of later keys sort behind those of earlier ones."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")


def _line(key_id: str, master: bytes) -> str:
    return f"{key_id}:{master.hex()}\n"


def _write(file: Path, text: str, owner: os.stat_result | None = None) -> None:
    """Replace the file at once, with mode 0600 from the first byte on; root keeps owner and readers of ``owner``."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:100]}.")  # mkstemp: 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
            if owner is not None and os.geteuid() == 0:
                os.fchown(out.fileno(), owner.st_uid, owner.st_gid)
                os.fchmod(out.fileno(), owner.st_mode & READERS)
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
