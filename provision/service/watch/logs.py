"""Writes logs to stderr: one JSON object per line, or plain text on a terminal."""

import json
import logging
import sys
from datetime import UTC, datetime

LOGGER = logging.getLogger("provision.service")


class Lines(logging.Formatter):
    """Formats a log record as one line of JSON, with the fields that were passed as ``extra={"fields": {...}}``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a log record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Words(logging.Formatter):
    """Formats a log record as a line of text for people; the fields follow the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging has
        """The line for a log record."""
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        return f"{super().formatMessage(record)} {fields}".rstrip()


def set_up(level: str = "INFO") -> None:
    """Send the logs of the service and of uvicorn to stderr: as text if stderr is a terminal, otherwise as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Words() if sys.stderr.isatty() else Lines())
    for name in ("provision.service", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
