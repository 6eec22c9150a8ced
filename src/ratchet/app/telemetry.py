"""Sends spans and metrics of runs by OTLP, from a thread: a run neither waits for an endpoint nor fails by one.

The worker that records an event sends what it ended. What a killed worker may not have sent any more is sent again by
its successor, with the same ids.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from ratchet import __version__
from ratchet.config import TelemetryConfig
from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from ratchet.core.telemetry import INSTRUMENTS, Measurement, RunTrace, TraceSpan
from ratchet.engine.run_ledger import EventCallback
from ratchet.plugins import install_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

SEND_EVERY_S, TIMEOUT_S, CLOSE_S = 1.0, 5.0, 1.0
UNSENT_S = 10.0  # what a worker ended in its last seconds may not have been sent
DETAIL_MAX_CHARS = 300
_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
log = logging.getLogger("ratchet.telemetry")


class Telemetry:
    """What one drive of a run sends. Where telemetry is off, it does nothing."""

    def __init__(self, sends: Exporter | None = None, past: Sequence[Entry] = ()) -> None:
        self._sends, self._past = sends, past
        self._trace, self._seq = RunTrace(""), 0

    def watching(self, watch: EventCallback) -> EventCallback:
        """Return a callback that also sends what an event ends."""

        def watched(entry: Entry, event: ev.Event, state: RunState) -> None:
            try:
                self._add(entry, event, state.run)
            except Exception as error:  # noqa: BLE001 — telemetry never fails a run
                _log_once(f"{type(error).__name__}: {error}")
            watch(entry, event, state)

        return watched if self._sends else watch

    def _add(self, entry: Entry, event: ev.Event, run: str) -> None:
        assert self._sends
        if not self._seq:
            self._open(run, self._sends)
        if entry.seq > self._seq:
            self._seq = entry.seq
            self._trace.add(entry.seq, entry.at, event)
            self._sends.send(*self._trace.take())

    def _open(self, run: str, sends: Exporter) -> None:
        self._trace = RunTrace(run)
        for entry in self._past:
            self._trace.add(entry.seq, entry.at, ev.decode(entry.kind, entry.data))
            self._seq = entry.seq
        spans, _measured = self._trace.take()
        if self._past:
            last = _nanoseconds(self._past[-1].at)
            sends.send([span for span in spans if _nanoseconds(span.ended) >= last - UNSENT_S * 1e9], [])

    def close(self) -> None:
        if self._sends:
            self._sends.close()


def open_telemetry(settings: TelemetryConfig, ledger: Callable[[], Sequence[Entry]]) -> Telemetry:
    """Return the telemetry of a drive: none unless an endpoint is set. `ledger` returns the run so far."""
    asked = settings.endpoint or any(os.environ.get(name) for name in _VARIABLES)
    if not asked or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Telemetry()
    try:
        return Telemetry(Exporter(settings.endpoint.rstrip("/")), ledger())
    except ImportError as error:
        if settings.endpoint:  # the variable may be meant for other programs
            _log_once(f"telemetry.endpoint is set, but the extra `otel` is missing ({error}): {install_extra('otel')}")
    except Exception as error:  # noqa: BLE001 — telemetry never fails a run
        _log_once(f"{type(error).__name__}: {error}")
    return Telemetry()


class Exporter:
    """Hands spans and measurements to the SDK, whose threads send them in batches and drop what cannot be sent."""

    def __init__(self, endpoint: str = "") -> None:
        # Imported here: they take longer to import than most commands take to run.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        _quieten()
        found = Resource.create({"service.version": __version__})
        unnamed = str(found.attributes["service.name"]).startswith("unknown_service")
        self._resource = found.merge(Resource({"service.name": "ratchet"})) if unnamed else found
        traces, metrics = (f"{endpoint}/v1/{signal}" if endpoint else None for signal in ("traces", "metrics"))
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=traces, timeout=TIMEOUT_S), schedule_delay_millis=SEND_EVERY_S * 1e3
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=metrics, timeout=TIMEOUT_S), export_interval_millis=SEND_EVERY_S * 10e3
        )
        self._meters = MeterProvider([reader], resource=self._resource, shutdown_on_exit=False)
        self._instruments = {name: self._instrument(name) for name in INSTRUMENTS}

    def _instrument(self, name: str) -> Callable[..., None]:
        unit, what, bounds = INSTRUMENTS[name]
        meter = self._meters.get_meter("ratchet")
        if not bounds:
            return meter.create_counter(name, unit, what).add
        return meter.create_histogram(name, unit, what, explicit_bucket_boundaries_advisory=bounds).record

    def send(self, spans: Sequence[TraceSpan], measured: Sequence[Measurement]) -> None:
        for span in spans:
            self._processor.on_end(self._readable(span))
        for one in measured:
            self._instruments[one.instrument](one.value, one.attributes)

    def _readable(self, span: TraceSpan) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan  # noqa: PLC0415
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

        def context(id: str) -> SpanContext:
            return SpanContext(int(span.trace, 16), int(id, 16), is_remote=False, trace_flags=TraceFlags(1))

        failed = Status(StatusCode.ERROR, span.detail[:DETAIL_MAX_CHARS] or span.error)
        return ReadableSpan(
            span.name,
            context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(name, timestamp=_nanoseconds(at)) for at, name in span.marks],
            kind=SpanKind.INTERNAL,
            status=failed if span.error else Status(StatusCode.UNSET),
            start_time=_nanoseconds(span.began),
            end_time=_nanoseconds(span.ended),
            instrumentation_scope=InstrumentationScope("ratchet"),
        )

    def close(self) -> None:
        """Send pending data for at most `CLOSE_S`, then drop the rest."""
        ending = threading.Thread(target=self._shut_down, daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _shut_down(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]
        self._meters.shutdown(timeout_millis=CLOSE_S * 1e3)


class _OnceHandler(logging.Handler):
    """Says the first thing that the SDK complains about: an endpoint that is down is down for every batch."""

    def emit(self, record: logging.LogRecord) -> None:
        _log_once(record.getMessage())


@cache
def _quieten() -> None:
    sdk = logging.getLogger("opentelemetry")
    sdk.propagate = False
    sdk.addHandler(_OnceHandler(logging.WARNING))


def _log_once(text: str) -> None:
    if not _logged:
        _logged.append(text)
        log.warning("telemetry is not sent, the run goes on: %s", text[:DETAIL_MAX_CHARS])


_logged: list[str] = []


def _nanoseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1e6) * 1_000
