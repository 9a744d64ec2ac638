"""Structured logs: one JSON object a line on stderr."""

import json
import logging
import sys
from datetime import UTC, datetime

LOGGER = logging.getLogger("provision.service")


class Lines(logging.Formatter):
    """A record as one line of JSON; what is passed as ``extra={"fields": {...}}`` comes along."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up(level: str = "INFO") -> None:
    """Send the service's and uvicorn's logs to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name in ("provision.service", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
