"""Counts how often each key has come by and says so each time: `word<TAB>count`.

Straight on the bindings that componentize-py makes of the operator contract (`wit/`). State is read and written in bulk:
one call for all words of a batch.
"""

import struct

from wit_world import exports
from wit_world.imports import collector, keyed_state
from wit_world.imports.types import Batch, Column, Descriptor, OptionalColumn, StateDescriptor, StateKind

COUNT = 0
NUMBER = struct.Struct("<Q")


class Handler(exports.Handler):
    def open(self, config: str) -> Descriptor:
        count = StateDescriptor(id=COUNT, name="count", kind=StateKind.KEYED_VALUE, ttl=None, schema_version=1)
        return Descriptor(states=[count], side_outputs=[])

    def process(self, input: int, records: Batch) -> None:
        slots = keyed_state.slots()
        counts = load_counts()
        data, offsets = records.keys.data, records.keys.offsets
        lines = []
        for slot, start, end in zip(slots, offsets, offsets[1:]):
            counts[slot] += 1
            lines.append(b"%b\t%d" % (data[start:end], counts[slot]))
        store_counts(counts)
        collector.emit(0, Batch(keys=records.keys, values=column(lines), timestamps=records.timestamps))

    def on_timers(self, domain, keys, tags, times) -> None:
        pass

    def on_watermark(self) -> None:
        pass

    def on_end_of_input(self, input: int, remaining: int) -> None:
        pass

    def close(self) -> None:
        pass


def load_counts() -> list[int]:
    """The count of each slot, 0 where there is none."""
    loaded = keyed_state.load(COUNT)
    data, offsets = loaded.values.data, loaded.values.offsets
    missing = set(loaded.missing)
    return [0 if slot in missing else NUMBER.unpack_from(data, offsets[slot])[0] for slot in range(len(offsets) - 1)]


def store_counts(counts: list[int]) -> None:
    """Sets the count of each slot."""
    values = Column(
        data=struct.pack(f"<{len(counts)}Q", *counts),
        offsets=list(range(0, NUMBER.size * len(counts) + 1, NUMBER.size)),
    )
    keyed_state.store(COUNT, OptionalColumn(values=values, missing=[]))


def column(strings: list[bytes]) -> Column:
    """Byte strings end to end."""
    offsets = [0]
    for string in strings:
        offsets.append(offsets[-1] + len(string))
    return Column(data=b"".join(strings), offsets=offsets)
