# SPDX-License-Identifier: Apache-2.0
"""The store of records in tables of SQLite, MariaDB or any other database that SQLAlchemy supports.

Several schedulers may share the tables.  Nothing is sent to the database before the first record, because a database
that does not answer must not keep the scheduler from starting.  The first write brings the tables to this release
(``migrations``).

The oldest rows leave in steps of ``RETAINED_ROWS`` rows.  A step first deletes their names: that makes another
scheduler wait that has chosen the same rows, and it then finds no texts.  So none is archived by two schedulers.  The
archive gets the rows when they are deleted, but before the end of the transaction; a process that is killed in between
leaves them in both.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from shared_scheduler.records import migrations
from shared_scheduler.records.errors import CONNECTION, RecordRefused, RecordsError
from shared_scheduler.records.record_shape import read_record
from shared_scheduler.records.sql_tables import NAMES, RECORDS, TEXTS
from shared_scheduler.records.store import (
    FILE_MODE,
    FOUND_MAX,
    SECONDS_PER_DAY,
    Record,
    RecordConditions,
    as_current,
    host_name,
    names_of,
    part_of_reasons,
    reasons_text,
    text_of,
)

if TYPE_CHECKING:
    from shared_scheduler.records.json_lines import JsonLines

#: Rows that leave in one step.
RETAINED_ROWS = 500
#: Records that are read in one step after some that could not be read; databases limit the values of a question.
READ_AT_ONCE_MAX = 10_000
#: The archive in its directory.
ARCHIVE = "database.jsonl"
#: Time that an answer of the database may take, longer than MariaDB waits for a lock, and the drivers with this limit.
ANSWER_WAIT_S, LIMITED = 60, ("pymysql", "mysqldb")
#: How often records are inserted that meet a deadlock, and the error by which MariaDB and MySQL tell it.
TRIES_MAX, DEADLOCK = 5, 1213
#: The kind of what the archive has for a row that is no record.
UNREADABLE = "unreadable"
#: What to do if there are no records.
NOT_WRITTEN = "name the database to which a scheduler has written"
#: Time that a connection or a lock of the database may take, for databases whose drivers have such a limit.
WAIT_S = {"mysql": {"connect_timeout": 10}, "mariadb": {"connect_timeout": 10}, "sqlite": {"timeout": 10}}


#: the text of a record, its values in ``RECORDS``, and its names
_Rows = tuple[str, dict[str, Any], list[str]]


def _answer_limits(url: sa.URL) -> dict[str, int]:
    """How long the driver waits for an answer, as its arguments; none if it has no such limit."""
    return dict.fromkeys(("read_timeout", "write_timeout"), ANSWER_WAIT_S) if url.get_driver_name() in LIMITED else {}


class RecordTable:
    """See ``store.Store``."""

    def __init__(self, url: str, rows_max: int = 100_000, days_max: float = 0, archive: Path | None = None) -> None:
        """Create the engine without connecting.

        ``days_max``: age of the oldest records, 0 for any.  ``archive``: directory for the rows that leave.

        :raises RecordsError: when the URL names no database, or its driver is missing
        """
        self._rows_max = rows_max
        self._age_max_s = days_max * SECONDS_PER_DAY
        self._archive = None if archive is None else _archive_in(archive)
        self._is_there = False  # whether the tables exist, and are those of this release
        try:
            limits = WAIT_S.get(sa.make_url(url).get_backend_name(), {})
            every = {**limits, **_answer_limits(sa.make_url(url))}
            self._engine = sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=1, connect_args=every)
            self._patient_engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=limits)
        except ImportError as error:  # no driver for the URL
            raise RecordsError(CONNECTION, error, _driver_remedy(url)) from error
        except sa.exc.SQLAlchemyError as error:
            remedy = "name a database in which the scheduler may create a table, or leave the option empty"
            raise RecordsError(CONNECTION, error, remedy) from error

    # -- writing

    def write(self, records: Iterable[Record]) -> None:
        """Insert the records in one transaction; make the tables if necessary.

        :raises RecordRefused: when the database does not accept the values of one of them
        :raises sqlalchemy.exc.SQLAlchemyError: when the database is away, or does not accept its tables
        """
        wanted = [(text_of(record), _row(record), list(names_of(record))) for record in records]
        if not wanted:
            return
        if not self._is_there:
            self._migrate()
        self._is_there = False  # unless this write shows it
        try:
            self._insert(wanted)
        except (sa.exc.DataError, sa.exc.IntegrityError) as error:
            raise RecordRefused(str(error.orig)) from error
        except UnicodeError as error:  # of the driver, before the database gets the values
            raise RecordRefused(str(error)) from error
        self._is_there = True

    def _migrate(self) -> None:
        """Bring the tables to this release.  A statement of that may take minutes, so only the first one is limited."""
        self._create_file()
        with self._engine.connect() as connection:
            connection.execute(sa.select(1))
        migrations.migrate(self._patient_engine)

    def _create_file(self) -> None:
        """Create the file of SQLite without rights for others, because records name projects, users and servers."""
        file = self._file()
        if file is not None and file.parent.is_dir():
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT, FILE_MODE))

    def _file(self) -> Path | None:
        """The file of SQLite; None for other databases."""
        url = self._engine.url
        return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    def _insert(self, rows: Sequence[_Rows]) -> None:
        """Insert them, again if the database has ended the transaction to end a deadlock."""
        for tried in range(1, TRIES_MAX + 1):
            try:
                self._insert_once(rows)
                return
            except sa.exc.DBAPIError as error:
                if tried == TRIES_MAX or not _is_deadlock(error):
                    raise

    def _insert_once(self, rows: Sequence[_Rows]) -> None:
        with self._engine.begin() as connection:
            texts: list[dict[str, Any]] = []
            names: list[dict[str, Any]] = []
            for text, row, of_row in rows:
                key = connection.execute(RECORDS.insert().values(row)).inserted_primary_key
                assert key is not None  # every database with autoincrement returns it
                texts.append({"record_id": key[0], "record": text})
                names += ({"name": name, "record_id": key[0]} for name in of_row)
            connection.execute(TEXTS.insert(), texts)
            if names:
                connection.execute(NAMES.insert(), names)

    def retain(self, now_s: float) -> bool:
        """See ``store.Store``.  A step is ``RETAINED_ROWS`` rows."""
        if not self._is_there:
            return False
        with self._engine.begin() as connection:
            beyond = sa.select(RECORDS.c.id).order_by(RECORDS.c.id.desc()).offset(self._rows_max).limit(1)
            newest_to_go = connection.execute(beyond).scalar() or 0
            oldest_at_s = now_s - self._age_max_s if self._age_max_s else float("-inf")
            oldest = sa.select(RECORDS.c.id, RECORDS.c.at).order_by(RECORDS.c.id).limit(RETAINED_ROWS)
            leaving = {key: at for key, at in connection.execute(oldest) if key <= newest_to_go or at < oldest_at_s}
            if leaving:
                self._remove(connection, leaving)
            return len(leaving) == RETAINED_ROWS

    def _remove(self, connection: sa.Connection, leaving: Mapping[int, float]) -> None:
        """Remove the rows ``leaving``: key -> when the record was made."""
        keys = list(leaving)
        connection.execute(NAMES.delete().where(NAMES.c.record_id.in_(keys)))
        texts = self._texts_for_archive(connection, keys)
        connection.execute(TEXTS.delete().where(TEXTS.c.record_id.in_(keys)))
        connection.execute(RECORDS.delete().where(RECORDS.c.id.in_(keys)))
        if self._archive is not None:  # at last, because the archive takes nothing back
            self._archive.write([_archived(text, leaving[key]) for key, text in texts])

    def _texts_for_archive(self, connection: sa.Connection, keys: Collection[int]) -> list[tuple[int, str]]:
        """Key and text of the rows that are still there; none if there is no archive."""
        if self._archive is None:
            return []
        texts = sa.select(TEXTS.c.record_id, TEXTS.c.record).where(TEXTS.c.record_id.in_(keys))
        found = connection.execute(texts.order_by(TEXTS.c.record_id).with_for_update())
        return [(key, text) for key, text in found]

    def close(self) -> None:
        """Close the connections and the archive."""
        self._engine.dispose()
        if self._archive is not None:
            self._archive.close()

    # -- reading

    def find(self, name: str) -> list[Record]:
        """See ``store.Store``."""
        return self.last(FOUND_MAX, RecordConditions(names=frozenset({name})))

    def last(self, count: int, wanted: RecordConditions) -> list[Record]:
        """See ``store.Store``."""
        query = _named([host_name(wanted.host)]) if wanted.host else sa.select(RECORDS.c.id)
        if wanted.names:
            query = query.where(RECORDS.c.id.in_(_named(wanted.names))) if wanted.host else _named(wanted.names)
        columns = {RECORDS.c.kind: wanted.kind, RECORDS.c.project_id: wanted.project, RECORDS.c.result: wanted.result}
        for column, value in columns.items():
            query = query.where(column == value) if value else query
        if wanted.reason:
            query = query.where(sa.func.instr(RECORDS.c.reasons, part_of_reasons(wanted.reason)) > 0)
        if wanted.since_s is not None:
            query = query.where(RECORDS.c.at >= wanted.since_s)
        if wanted.until_s is not None:
            query = query.where(RECORDS.c.at <= wanted.until_s)
        return self._newest(query, count)

    def _newest(self, query: sa.Select[tuple[int]], count: int) -> list[Record]:
        """The newest ``count`` of the records whose ids the query finds, oldest first."""
        if (file := self._file()) is not None and not file.exists():  # SQLite would make one, which is the reader's
            raise RecordsError(CONNECTION, FileNotFoundError(f"no file {file}"), NOT_WRITTEN)
        try:
            with self._engine.connect() as connection:
                found = _newest_readable(connection, query, count)
        except sa.exc.SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise RecordsError(CONNECTION, cause, NOT_WRITTEN) from error
        return sorted(found, key=lambda record: float(record["at"]))


def _newest_readable(connection: sa.Connection, query: sa.Select[tuple[int]], count: int) -> list[Record]:
    """The newest ``count`` of them that this release can read; the others do not count, and twice as many are tried."""
    found, tried = list[Record](), count
    while True:
        keys = connection.execute(query.order_by(RECORDS.c.id.desc()).limit(tried)).scalars().all()
        texts = sa.select(TEXTS.c.record).where(TEXTS.c.record_id.in_(keys)).order_by(TEXTS.c.record_id.desc())
        read = map(read_record, connection.execute(texts).scalars())
        found += [as_current(record) for record in read if record is not None]
        if len(found) >= count or len(keys) < tried:
            return found[:count]
        query, tried = query.where(RECORDS.c.id < min(keys)), min(2 * tried, READ_AT_ONCE_MAX)


def _is_deadlock(error: sa.exc.DBAPIError) -> bool:
    """Whether the database has taken the transaction back because another one waits for it."""
    return getattr(error.orig, "args", ())[:1] == (DEADLOCK,)


def _archived(text: str, at_s: float) -> Record:
    """The record of a row; a text that is none, of another release or a damaged row, is kept as it is."""
    return read_record(text) or {"kind": UNREADABLE, "at": at_s, "text": text}


def _archive_in(directory: Path) -> JsonLines:
    from shared_scheduler.records.json_lines import JsonLines  # imports NumPy, which a reader of tables does not need

    return JsonLines(directory / ARCHIVE, kept=None)


def _driver_remedy(url: str) -> str:
    """What to do if the driver of the URL is not installed."""
    backend = sa.make_url(url).get_backend_name()
    if backend in ("mysql", "mariadb"):
        return f"write {backend}+pymysql:// for {url.partition(':')[0]}://, because PyMySQL is installed with Nova"
    return f"install the driver of {url.partition(':')[0]}://, or name another one as {backend}+DRIVER://"


def _named(names: Collection[str]) -> sa.Select[tuple[int]]:
    """The ids of the records that have one of the names, each once."""
    found = sa.select(RECORDS.c.id).join(NAMES, NAMES.c.record_id == RECORDS.c.id).where(NAMES.c.name.in_(names))
    return found if len(names) == 1 else found.distinct()


def _row(record: Record) -> dict[str, Any]:
    """The values of ``RECORDS``."""
    columns = {name: str(record.get(name, "")) for name in ("kind", "scheduler", "project_id", "result")}
    return {"at": record["at"], "reasons": reasons_text(record), **columns}
