"""Executes single statements directly with libpq, which takes a third of the client time of a psycopg cursor.

Only for verbs that are one statement, which is its own transaction. A call cannot be interrupted: it ends with the
server's response or by the server's statement timeout.
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

PREPARED_AT = 2  # preparing costs a round trip, which a statement that runs once does not earn back
_READ: dict[int, Callable[[bytes], object]] = {
    16: lambda value: value == b"t",
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
}


class Connection(psycopg.Connection[dict[str, Any]]):
    """A connection that tracks which statements are prepared on the server."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.execution_counts: dict[str, int] = {}

    def execute_direct(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        """Execute one statement with `?` placeholders and return its rows."""
        given, formats = [_written(value) for value in values], [isinstance(value, bytes) for value in values]
        count = self.execution_counts[sql] = self.execution_counts.get(sql, 0) + 1
        name, text = number_parameters(sql)
        if count < PREPARED_AT:
            return self._rows(self.pgconn.exec_params(text, given, None, formats))
        if count == PREPARED_AT:
            self._checked(self.pgconn.prepare(name, text))
        try:
            return self._rows(self.pgconn.exec_prepared(name, given, formats))  # type: ignore[arg-type]  # NULL is None
        except InvalidSqlStatementName:  # psycopg deallocates prepared statements on rollback; nothing was executed
            del self.execution_counts[sql]
            return self.execute_direct(sql, values)

    def _rows(self, result: PGresult) -> list[Row]:
        self._checked(result)
        columns = [(result.fname(n) or b"", _READ.get(result.ftype(n), bytes.decode)) for n in range(result.nfields)]
        return [_row(result, columns, at) for at in range(result.ntuples)]

    def _checked(self, result: PGresult) -> None:
        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return
        if result.error_field(DiagnosticField.SQLSTATE) is None:  # not an error of the server: the connection is lost
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
def number_parameters(sql: str) -> tuple[bytes, bytes]:
    """Return a name for the prepared statement, and the statement with `$1`, `$2` … as placeholders."""
    first, *others = sql.split("?")
    text = first + "".join(f"${n}{part}" for n, part in enumerate(others, start=1))
    return b"ratchet_%d" % next(_names), text.encode()
