# SPDX-License-Identifier: Apache-2.0
"""Any user of the machine puts a key of his own among the keys that are accepted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from shared_scheduler.protocol.errors import KeyringError
from shared_scheduler.transport.key_options import configured_keys


def test_such_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("k1:00112233445566778899aabbccddeeff\n")
    file.chmod(0o666)
    options = SimpleNamespace(signing="enforce", signing_keys_file=str(file))
    with pytest.raises(KeyringError, match="any user of this machine may write it"):
        configured_keys(options, "compute_agent")
