"""Reads options of the command line that list numbers."""

from typing import TypeVar

from provision.models.base.errors import InputError

N = TypeVar("N", int, float)


def listed(option: str, text: str, kind: type[N], low: float, high: float) -> list[N]:
    """The numbers that an option of the command line lists with commas between them.

    Raises
    ------
    InputError
        If a number is not of type ``kind`` (int or float) or not between ``low`` and ``high``.
    """
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(low <= number <= high for number in numbers):
        whole = "whole " if kind is int else ""
        raise InputError(f"--{option} {text}: write {whole}numbers from {low} to {high}, with commas between")
    return numbers
