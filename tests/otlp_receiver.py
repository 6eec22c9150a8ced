"""A receiver of OTLP over HTTP: decodes what is sent with the protocol's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """What was received: spans by id in hex, and the sums of each metric's points by their attributes."""

    def __init__(self) -> None:
        self.address = ""
        self.spans: dict[str, dict[str, Any]] = {}
        self.received: list[str] = []  # span ids, also those that came again
        self.metrics: dict[str, dict[tuple[tuple[str, Any], ...], float]] = {}
        self.resources: list[dict[str, Any]] = []

    def add(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_values(resource.resource.attributes))
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self.received.append(span.span_id.hex())
                    self.spans[span.span_id.hex()] = {
                        "name": span.name,
                        "trace": span.trace_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "began": span.start_time_unix_nano,
                        "ended": span.end_time_unix_nano,
                        "attributes": _values(span.attributes),
                        "events": [event.name for event in span.events],
                        "status": span.status.code,
                    }
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    points = self.metrics.setdefault(metric.name, {})
                    for point in metric.histogram.data_points:
                        points[tuple(sorted(_values(point.attributes).items()))] = point.sum
                    for number in metric.sum.data_points:
                        points[tuple(sorted(_values(number.attributes).items()))] = number.as_double or number.as_int


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.add(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()
