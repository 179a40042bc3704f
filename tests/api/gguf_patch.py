"""A model file with more keys in its metadata: what stands behind them keeps its alignment."""
import struct

UINT32, STRING, ALIGNMENT = 4, 8, 32


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def add_u32(source, target, keys):
    """Copies a GGUF file and adds 32-bit keys in front of its others."""
    data = source.read_bytes()
    magic, version, tensors, n = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version in (2, 3)
    more = b"".join(text(key) + struct.pack("<II", UINT32, value) for key, value in keys.items())
    head = text("test.padding") + struct.pack("<I", STRING)
    fill = -(len(more) + len(head) + 8) % ALIGNMENT
    more += head + text("x" * fill)
    target.write_bytes(struct.pack("<4sIQQ", magic, version, tensors, n + len(keys) + 1) + more + data[24:])
    return target
