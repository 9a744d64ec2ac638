"""The HTTP interface: every operation is a handler, from which its route and its OpenAPI description are made."""
