#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lesson 12: prints the packets of a capture, as `tshark -V` would, but shorter. python3 packets.py FILE"""
import struct
import sys

PLACES = ["FIRST", "MIDDLE", "LAST", "LAST_WITH_IMM", "ONLY", "ONLY_WITH_IMM"]


def packets(data):
    """(bytes that were kept, bytes on the wire) of each packet."""
    at = 24  # behind the file's own header
    while at < len(data):
        n_kept, n_wire = struct.unpack_from("<II", data, at + 8)
        yield data[at + 16:at + 16 + n_kept], n_wire
        at += 16 + n_kept


def text_of(packet, n_wire):
    ip, bth, rest = packet[14:], packet[42:], packet[54:]
    opcode, pair, psn = bth[0], struct.unpack(">I", bth[4:8])[0] & 0xffffff, struct.unpack(">I", bth[8:12])[0]
    kind, place = ("SEND", "WRITE", "READ")[opcode // 6], PLACES[opcode % 6]
    text = f"{'.'.join(map(str, ip[12:16]))} -> {'.'.join(map(str, ip[16:20]))} DSCP {ip[1] >> 2} ECN {ip[1] & 3}" \
           f" pair {pair:#x} PSN {psn & 0xffffff:#08x} {kind}_{place}"
    if kind == "WRITE" and place in ("FIRST", "ONLY", "ONLY_WITH_IMM"):
        address, key, n_bytes = struct.unpack(">QII", rest[:16])
        text, rest = f"{text} to {address:#x} key {key:#x} {n_bytes} bytes", rest[16:]
    if place.endswith("IMM"):
        text += f" imm {struct.unpack('>I', rest[:4])[0]:#x}"
    return f"{text} ({n_wire} on the wire)"


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        for one in packets(file.read()):
            print(text_of(*one))
