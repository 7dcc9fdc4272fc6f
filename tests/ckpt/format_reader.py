"""A reader of checkpoint format version 1, written from FORMAT.md alone: plain
Python, no HDF5, nothing of our libraries. Rules are cited by number.

SPDX-License-Identifier: Apache-2.0
"""
import itertools
import math
import operator
import os
import struct

import xxhash
import zstandard

USER_BLOCK_BYTES = 4096
BLOCK_BYTES = 4 << 20
MAX_STORED_BYTES = BLOCK_BYTES + BLOCK_BYTES // 256  # C3
MAGIC = b"\x89SSC\r\n\x1a\n"
PART, INDEX = 1, 2
DTYPES = [  # T7
    ("BOOL", 1), ("U8", 1), ("I8", 1), ("F8_E5M2", 1), ("F8_E4M3", 1),
    ("F8_E8M0", 1), ("I16", 2), ("U16", 2), ("F16", 2), ("BF16", 2),
    ("I32", 4), ("U32", 4), ("F32", 4), ("C64", 8), ("F64", 8), ("I64", 8),
    ("U64", 8)
]


class FormatError(Exception):
    """A rule is broken; the message begins with its number."""


def check(condition, rule):
    if not condition:
        raise FormatError(rule)


def checksum(data):
    return xxhash.xxh3_64_intdigest(data)


def digest(data):
    """(low, high)."""
    value = xxhash.xxh3_128_intdigest(data)
    return value & (1 << 64) - 1, value >> 64


def text(data):
    return struct.pack("<Q", len(data)) + data


class UserBlock:
    """U1. `data` is the whole file."""

    def __init__(self, data, role):
        check(len(data) >= USER_BLOCK_BYTES, "R1: shorter than a user block")
        check(data[:8] == MAGIC, "U1: magic")
        (stored,) = struct.unpack_from("<Q", data, 4088)
        check(stored == checksum(data[:4088]), "U1: checksum")
        (version, self.role, self.file_bytes, self.table_offset,
         self.table_bytes, self.table_checksum, low,
         high) = struct.unpack_from("<IIQQQQQQ", data, 8)
        self.digest = (low, high)
        check(version == 1, f"V2: version {version}")
        check(not any(data[64:4088]), "U1: zeros")
        check(self.role == role, "U1: role")
        check(self.table_offset >= USER_BLOCK_BYTES, "U1: place of the table")
        check(self.table_offset + self.table_bytes <= self.file_bytes,
              "U1: place of the table")
        check(self.file_bytes == len(data), "R1: size of the file")

    def table(self, data):
        found = data[self.table_offset:self.table_offset + self.table_bytes]
        check(checksum(found) == self.table_checksum, "R2: table checksum")
        return found


def metadata_digest(data, payload):
    """U2. payload: (begin, end) of each block, ascending."""
    pieces = [data[:48], bytes(16), data[64:4088], bytes(8)]
    begin = USER_BLOCK_BYTES
    for block_begin, block_end in payload:
        pieces.append(data[begin:block_begin])
        begin = block_end
    pieces.append(data[begin:])
    return digest(b"".join(pieces))


class Decoder:
    """R2."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, size):
        check(self.at + size <= len(self.data), "R2: the table ends too early")
        self.at += size
        return self.data[self.at - size:self.at]

    def u8(self):
        return self.take(1)[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def int(self):
        value = 0
        for shift in range(0, 63, 7):
            byte = self.u8()
            value |= (byte & 0x7f) << shift
            if byte < 0x80:
                check(byte or not shift, "numbers: a varint too long")
                return value
        check(False, "numbers: a varint has 63 bits")

    def text(self):
        return self.take(self.int())

    def ints(self, count):
        return tuple(self.int() for _ in range(count))


class Tensor:
    """T3, without its fragments."""

    def __init__(self, decoder):
        self.name = decoder.text()
        self.role = decoder.text()
        self.key = (self.name, self.role)
        self.dtype = decoder.u8()
        self.shape = decoder.ints(decoder.u8())
        for name in self.key:
            check(len(name) <= 1024 and all(0x20 < c < 0x7f for c in name),
                  "T5")
            check(not {b"", b".", b".."} & set(name.split(b"/")), "T5")
        check(b"/" not in self.key[1], "T5: role")
        check(self.dtype < len(DTYPES), f"T7: dtype {self.dtype}")
        self.dtype_name, self.item_bytes = DTYPES[self.dtype]
        check(len(self.shape) <= 32, "L1: ndim")
        extents = math.prod(n for n in self.shape if n > 0)
        check(extents < 1 << 63 and self.num_bytes() < 1 << 63, "L1: size")

    def num_bytes(self):
        return math.prod(self.shape) * self.item_bytes

    def __eq__(self, other):
        return (self.key, self.dtype, self.shape) == (other.key, other.dtype,
                                                      other.shape)


class Fragment:
    """T4."""

    def __init__(self, decoder, tensor, index):
        self.tensor = tensor
        self.part = decoder.int()
        self.codec = decoder.u8()
        ndim = len(self.tensor.shape)
        self.start = decoder.ints(ndim)
        self.extent = decoder.ints(ndim)
        self.order = (index, self.start, self.extent)
        self.fingerprint = (decoder.u64(), decoder.u64())
        check(self.codec <= 1, f"C1: codec {self.codec}")
        self.blocks = self.read_blocks(decoder, decoder.int())
        self.check()

    def read_blocks(self, decoder, count):
        """(offset, stored bytes, checksum) of each; B5 for those of codec 0."""
        if self.codec == 1:
            return [(decoder.int(), decoder.int(), decoder.u64())
                    for _ in range(count)]
        begin = decoder.int() if count else 0
        size = self.num_bytes()
        return [(begin + b * BLOCK_BYTES,
                 min(BLOCK_BYTES, size - b * BLOCK_BYTES), decoder.u64())
                for b in range(count)]

    def num_bytes(self):
        return math.prod(self.extent) * self.tensor.item_bytes

    def check(self):
        for start, extent, size in zip(self.start, self.extent,
                                       self.tensor.shape):
            check(start + extent <= size, "B1: a box beyond its tensor")
        if self.num_bytes() == 0:
            check(self.extent == self.tensor.shape, "B2: an empty box")
            check(self.fingerprint == (0, 0), "B2: fingerprint")
        check(all(lane < MODULUS for lane in self.fingerprint), "F2")
        check(len(self.blocks) == -(-self.num_bytes() // BLOCK_BYTES), "B3")
        if self.codec == 1:
            check(all(1 <= stored <= MAX_STORED_BYTES
                      for _, stored, _ in self.blocks), "C3: stored_bytes")

    def payload(self):
        return [(offset, offset + stored) for offset, stored, _ in self.blocks]

    def rows(self):
        """(offset in the tensor's image, offset in the box's, size), in bytes,
        of what is contiguous in both."""
        shape = self.tensor.shape
        row = self.num_bytes()
        if shape:
            row = self.extent[-1] * self.tensor.item_bytes
        if row == 0:
            return
        ranges = [range(s, s + e) for s, e in zip(self.start, self.extent)]
        for number, outer in enumerate(itertools.product(*ranges[:-1])):
            linear = 0
            for size, i in zip(shape, outer + self.start[-1:]):
                linear = linear * size + i
            yield linear * self.tensor.item_bytes, number * row, row

    def image(self, data):
        """B5, C2 and R6: the box's values out of the part's bytes."""
        pieces = []
        for offset, stored, expected in self.blocks:
            block = data[offset:offset + stored]
            check(checksum(block) == expected,
                  f"R6: {self.tensor.key} at byte {offset}")
            pieces.append(self.decompressed(block) if self.codec else block)
        # A short last block was padded to a whole chunk.
        return b"".join(pieces)[:self.num_bytes()]

    def decompressed(self, block):
        """C2 and C3."""
        chunk_bytes = min(self.num_bytes(), BLOCK_BYTES)
        check(zstandard.frame_content_size(block) == chunk_bytes, "C3: size")
        frame = zstandard.ZstdDecompressor().decompressobj()
        planes = frame.decompress(block)
        check(len(planes) == chunk_bytes and not frame.unused_data,
              "C3: frame")
        size = self.tensor.item_bytes
        values = bytearray(chunk_bytes)
        for k in range(size):
            values[k::size] = planes[k * chunk_bytes // size:
                                     (k + 1) * chunk_bytes // size]
        return bytes(values)


class Table:
    """T1."""

    def __init__(self, data):
        decoder = Decoder(data)
        self.step = decoder.int()
        self.state = decoder.text()
        self.record = decoder.text()
        # T2: number, size of the file, digest.
        self.parts = [(decoder.int(), decoder.int(),
                       (decoder.u64(), decoder.u64()))
                      for _ in range(decoder.int())]
        self.tensors = []
        self.fragments = []
        for index in range(decoder.int()):
            tensor = Tensor(decoder)
            self.tensors.append(tensor)
            self.fragments += [Fragment(decoder, tensor, index)
                               for _ in range(decoder.int())]
        check(decoder.at == len(data), "R2: bytes are left over")
        for keys in ([t.key for t in self.tensors],
                     [p[0] for p in self.parts],
                     [f.order for f in self.fragments]):
            check(all(a < b for a, b in zip(keys, keys[1:])), "T1: order")
        check({f.tensor.key for f in self.fragments} ==
              {t.key for t in self.tensors}, "B2: a tensor without fragment")


MODULUS = (1 << 61) - 1  # F2


def splitmix(seed, index):
    """F3."""
    mask = (1 << 64) - 1
    z = (seed + (index + 1) * 0x9e3779b97f4a7c15) & mask
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & mask
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & mask
    return z ^ (z >> 31)


COEFFICIENTS = [  # F5, T_l(j)
    [splitmix(0, 512 * lane + j) >> 16 for j in range(512)] for lane in (0, 1)
]


class Fingerprint:
    """F4 to F6: the sum over bytes of a tensor's image."""

    def __init__(self, key, dtype):
        name, role = key
        self.keys = digest(text(name) + text(role) + bytes([dtype]))
        self.lanes = [0, 0]

    def add(self, offset, data):
        word, front = divmod(offset, 4)
        data = bytes(front) + data
        data += bytes(-len(data) % 4)
        words = struct.unpack(f"<{len(data) // 4}I", data)
        done = 0
        while done < len(words):
            block, j = divmod(word + done, 512)
            values = words[done:done + 512 - j]
            for lane in (0, 1):
                inner = sum(map(operator.mul, COEFFICIENTS[lane][j:], values))
                scale = 1 + (splitmix(self.keys[lane], block) >> 4)
                self.lanes[lane] = (self.lanes[lane] + scale * inner) % MODULUS
            done += len(values)


def image_fingerprint(key, dtype, image):
    whole = Fingerprint(key, dtype)
    whole.add(0, image)
    return tuple(whole.lanes)


def fragment_fingerprint(fragment, image):
    part = Fingerprint(fragment.tensor.key, fragment.tensor.dtype)
    for offset, at, size in fragment.rows():
        part.add(offset, image[at:at + size])
    return tuple(part.lanes)


def root_fingerprint(tensors):
    """F8. tensors: (key, dtype, shape, fingerprint), ascending by key."""
    pieces = []
    for (name, role), dtype, shape, fingerprint in tensors:
        pieces += [text(name), text(role), bytes([dtype, len(shape)]),
                   struct.pack(f"<{len(shape)}Q", *shape),
                   struct.pack("<QQ", *fingerprint)]
    return digest(b"".join(pieces))


def printed(fingerprint):
    """F2 and F8."""
    return f"{fingerprint[1]:016x}{fingerprint[0]:016x}"


def read_files(step_dir):
    files = {}
    for name in os.listdir(step_dir):
        with open(os.path.join(step_dir, name), "rb") as file:
            files[name] = file.read()
    return files


class Checkpoint:
    """R1 to R5. files: name to bytes; name: that of the step directory."""

    def __init__(self, files, name):
        check("index.h5" in files, "R4: no index")
        self.index = files["index.h5"]
        self.block = UserBlock(self.index, INDEX)
        self.table = Table(self.block.table(self.index))
        check(not name.startswith("step-") or
              name == f"step-{self.table.step:08d}", "D5")
        self.parts = {}
        for number, size, expected in self.table.parts:
            name = f"part-{number:05d}.h5"
            check(name in files, f"R4: {name} is missing")
            block = UserBlock(files[name], PART)
            check(block.file_bytes == size and block.digest == expected,
                  f"R4: {name} is of another save")
            self.parts[number] = files[name]
            self.check_places(number)
        for tensor in self.table.tensors:
            self.check_cover(tensor)

    @classmethod
    def open(cls, step_dir):
        return cls(read_files(step_dir), os.path.basename(step_dir))

    def check_places(self, number):
        """B4."""
        places = self.payload(number)
        check(all(begin >= USER_BLOCK_BYTES and end <= len(self.parts[number])
                  for begin, end in places), "B4: place")
        check(all(a[1] <= b[0] for a, b in zip(places, places[1:])),
              "B4: overlap")

    def fragments_of_part(self, number):
        return [f for f in self.table.fragments if f.part == number]

    def payload(self, number):
        fragments = self.fragments_of_part(number)
        return sorted(place for f in fragments for place in f.payload())

    def fragments(self, tensor):
        return [f for f in self.table.fragments if f.tensor is tensor]

    def check_cover(self, tensor):
        """B1, byte by byte."""
        seen = bytearray(tensor.num_bytes())
        for fragment in self.fragments(tensor):
            check(fragment.part in self.parts, "T4: part")
            for offset, _, size in fragment.rows():
                check(not any(seen[offset:offset + size]), "B1: overlap")
                seen[offset:offset + size] = b"\1" * size
        check(all(seen), "B1: a hole")

    def image(self, tensor):
        """The dense image of a whole tensor."""
        image = bytearray(tensor.num_bytes())
        for fragment in self.fragments(tensor):
            values = fragment.image(self.parts[fragment.part])
            for offset, at, size in fragment.rows():
                image[offset:offset + size] = values[at:at + size]
        return bytes(image)

    def fingerprint(self, tensor):
        lanes = [f.fingerprint for f in self.fragments(tensor)]
        return tuple(sum(lane) % MODULUS for lane in zip(*lanes))

    def root(self):
        return root_fingerprint([(t.key, t.dtype, t.shape, self.fingerprint(t))
                                 for t in self.table.tensors])

    def verify(self):
        """R7, but for the fingerprints."""
        check(metadata_digest(self.index, []) == self.block.digest, "U2")
        for number, data in self.parts.items():
            block = UserBlock(data, PART)
            check(metadata_digest(data, self.payload(number)) == block.digest,
                  "U2")
            mine = self.fragments_of_part(number)
            self.check_table_of_part(Table(block.table(data)), mine)
            for fragment in mine:
                fragment.image(data)

    def check_table_of_part(self, table, mine):
        check((table.step, table.state, table.record, table.parts) ==
              (self.table.step, self.table.state, b"", []), "T1: a part's")
        check(len(table.fragments) == len(mine), "R7: a part's table")
        for own, indexed in zip(table.fragments, mine):
            check(own.part == 0 and own.tensor == indexed.tensor and
                  (own.start, own.extent, own.fingerprint, own.blocks) ==
                  (indexed.start, indexed.extent, indexed.fingerprint,
                   indexed.blocks), "R7: a part's table")
