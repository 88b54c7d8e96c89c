"""Reads the exported functions of a shared object from the dynamic symbol table of a 64-bit little-endian ELF file."""

import struct

SECTION_DYNSYM, TYPE_FUNCTION, UNDEFINED = 11, 2, 0


def functions(path):
    """Returns the names of the exported functions."""
    with open(path, "rb") as file:
        image = file.read()
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + number * size) for number in range(count)]
    names = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != SECTION_DYNSYM:
            continue
        texts = sections[link][4]
        for at in range(offset, offset + length, entry):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", image, at)
            if info & 15 == TYPE_FUNCTION and section != UNDEFINED:
                begin = texts + name
                names.add(image[begin : image.index(b"\0", begin)].decode())
    return names


def path_of(name):
    """Returns the file of a loaded library."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5:]
            if path and path[0].strip().rsplit("/", 1)[-1].startswith(name):
                return path[0].strip()
    raise LookupError(f"{name} is not loaded")
