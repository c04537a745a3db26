"""The wire format of protobuf messages: where their fields lie. No schema and no library is needed for what we read."""

from __future__ import annotations


def fields(payload: bytes, position: int, end: int) -> list[tuple[int, int, int]]:
    """Fields of a protobuf message: (number, first byte, one past the last byte of its content)."""
    out = []
    while position < end:
        key, position = varint(payload, position)
        wire = key & 7
        if wire == 0:
            low = position
            _, position = varint(payload, position)
            out.append((key >> 3, low, position))
        elif wire == 2:
            size, low = varint(payload, position)
            position = low + size
            out.append((key >> 3, low, position))
        elif wire in (1, 5):
            low, position = position, position + (8 if wire == 1 else 4)
            out.append((key >> 3, low, position))
        else:
            raise IndexError(f"wire type {wire}")
        if position > end:
            raise IndexError("beyond the end")
    return out


def varint(payload: bytes, position: int) -> tuple[int, int]:
    """A number of variable length at a position, and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise IndexError("a number without an end")
