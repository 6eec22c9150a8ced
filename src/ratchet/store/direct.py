"""One statement by the shortest way, which is libpq's own: through a cursor, its client works three times as long.

Only for verbs that are a single statement, which is its own transaction. Nobody can interrupt one of them: it ends with
its answer, or by the server's own limit on statements.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import psycopg
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from ratchet.store.database import Row

PREPARED_AT = 2  # what is said once, as by a command, is not worth a round trip more
_READ: dict[int, Callable[[bytes], object]] = {
    16: lambda value: value == b"t",
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
}


class Connection(psycopg.Connection[dict[str, Any]]):
    """It knows which statements its server has prepared for it."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.times_said: dict[str, int] = {}

    def say(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        """Do one statement with `?` for values, and give the rows it answers."""
        given, formats = [_written(value) for value in values], [isinstance(value, bytes) for value in values]
        said = self.times_said[sql] = self.times_said.get(sql, 0) + 1
        name, text = numbered(sql)
        if said < PREPARED_AT:
            return self._rows(self.pgconn.exec_params(text, given, None, formats))
        if said == PREPARED_AT:
            self._checked(self.pgconn.prepare(name, text))
        try:
            return self._rows(self.pgconn.exec_prepared(name, given, formats))  # type: ignore[arg-type]  # NULL is None
        except InvalidSqlStatementName:  # with a rollback psycopg lets go of all that was prepared. Nothing was done
            del self.times_said[sql]
            return self.say(sql, values)

    def _rows(self, result: PGresult) -> list[Row]:
        self._checked(result)
        columns = [(result.fname(n) or b"", _READ.get(result.ftype(n), bytes.decode)) for n in range(result.nfields)]
        return [_row(result, columns, at) for at in range(result.ntuples)]

    def _checked(self, result: PGresult) -> None:
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return
        if result.error_field(DiagnosticField.SQLSTATE) is None:  # it was not the server who said so: it is away
            raise psycopg.OperationalError(result.get_error_message())
        raise error_from_result(result)


def _row(result: PGresult, columns: list[tuple[bytes, Callable[[bytes], object]]], at: int) -> Row:
    values = [result.get_value(at, n) for n in range(len(columns))]
    pairs = zip(columns, values, strict=True)
    return {name.decode(): None if value is None else read(value) for (name, read), value in pairs}


def _written(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    assert isinstance(value, str | int), value
    return str(value).encode()


_names = count()


@cache
def numbered(sql: str) -> tuple[bytes, bytes]:
    """What the statement is called, and itself with `$1`, `$2` …"""
    first, *others = sql.split("?")
    text = first + "".join(f"${n}{part}" for n, part in enumerate(others, start=1))
    return b"ratchet_%d" % next(_names), text.encode()
