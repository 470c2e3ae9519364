# SPDX-License-Identifier: Apache-2.0
"""The servers that the service needs are checked first, and named when they do not answer."""

from __future__ import annotations

import socket

import pytest

from shared_scheduler.service import preflight


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_what_listens_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        said: list[str] = []

        preflight.wait_for([preflight.Dependency("the broker", "x", (address,))], 0.0, said.append)

        assert said == []


def test_one_address_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        addresses = (("127.0.0.1", closed_port()), ("127.0.0.1", server.getsockname()[1]))

        preflight.wait_for([preflight.Dependency("the broker", "x", addresses)], 0.0, print)


def test_a_server_that_is_down_is_named_with_option_and_remedy() -> None:
    port = closed_port()
    dependency = preflight.database(
        "the API database",
        "[api_database] connection",
        f"mysql+pymysql://nova:secret@127.0.0.1:{port}/nova_api",
    )
    assert dependency is not None
    said: list[str] = []

    with pytest.raises(preflight.ServerUnreachableError) as raised:
        preflight.wait_for([dependency], 0.0, said.append)

    line = str(raised.value)
    assert f"127.0.0.1:{port}" in line
    assert "[api_database] connection" in line
    assert "secret" not in line
    assert len(said) == 1


def test_a_unix_socket_in_the_url_is_what_counts(tmp_path: object) -> None:
    url = f"mysql+pymysql://nova@localhost/nova?unix_socket={tmp_path}/mysqld.sock"
    dependency = preflight.database("the database", "[database] connection", url)
    assert dependency is not None

    with pytest.raises(preflight.ServerUnreachableError, match=r"mysqld\.sock"):
        preflight.wait_for([dependency], 0.0, lambda _: None)


def test_a_password_may_have_all_characters_that_sqlalchemy_accepts() -> None:
    """Nova starts with such a URL, so we do."""
    url = "mysql+pymysql://nova:se/cr:et@db:3307/nova"
    dependency = preflight.database("the database", "[database] connection", url)
    assert dependency is not None
    assert dependency.addresses == (("db", 3307),)


@pytest.mark.parametrize("url", ["nonsense", "mysql+pymysql://nova:secret@db:port/nova"])
def test_an_invalid_url_is_reported_without_the_password(url: str) -> None:
    text = r"\[database\] connection is not a valid database URL"
    with pytest.raises(preflight.ServerOptionError, match=text) as error:
        preflight.database("the database", "[database] connection", url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("url", ["mysql+pymsql://nova:secret@db/nova", "msql://nova:secret@db/nova",
                                 "mysql+mysqldb://nova:secret@db/nova"])  # fmt: skip
def test_a_missing_driver_is_reported_at_once(url: str) -> None:
    with pytest.raises(preflight.ServerOptionError, match=r"\[database\] connection .* driver") as error:
        preflight.database("the database", "[database] connection", url)
    assert url.partition(":")[0] in str(error.value)
    assert "secret" not in str(error.value)


def test_sqlite_needs_no_server() -> None:
    assert preflight.database("the database", "[database] connection", "sqlite://") is None


def test_a_missing_connection_is_reported_at_once() -> None:
    with pytest.raises(preflight.ServerOptionError, match=r"\[api_database\] connection is not set"):
        preflight.database("the API database", "[api_database] connection", None)
