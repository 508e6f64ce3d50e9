# SPDX-License-Identifier: Apache-2.0
"""Attacks every listening port of a process as strangers do: strangers.py PID ADDRESS KIND ...

Looks the process' ports up in /proc, as one on its host can (elsewhere one would have to scan), and attacks each
new one from here until the process has ended. ADDRESS replaces the ports' own where it is not "-". Kinds:
  silent   20 connections that say nothing      http    a request
  random   1 MB of random bytes                 storm   200 connections, closed or reset at once
  junk     UCX's magic number, then junk        split   the same in pieces
  half     a connection request, cut short      peer    a whole connection request, then junk
Prints for each kind how many connections there were, and how many of them got through.
"""
import os
import random
import socket
import struct
import sys
import threading
import time

MAGIC = struct.pack("<Q", 0xCAFEBABE12345678)
REQUEST = MAGIC + struct.pack("<BIIBQ", 32, 29, 1, 0, 7) + struct.pack("<HH4s8x", 2, 0x3930, bytes([127, 0, 0, 1]))
counts = {}
lock = threading.Lock()
kept = []


def listeners(pid):
    """(address, port) of the listening sockets of a process."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    found = set()
    with open(f"/proc/{pid}/net/tcp") as table:
        for line in table.readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                host, port = words[1].split(":")
                found.add((socket.inet_ntoa(struct.pack("<I", int(host, 16))), int(port, 16)))
    return found


def connect(kind, target):
    s = socket.socket()
    s.settimeout(0.1)  # a dropped packet is sent again after a second
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    through = True
    try:
        s.connect(target)
    except OSError:
        through = False
    with lock:
        tried, got = counts.get(kind, (0, 0))
        counts[kind] = (tried + 1, got + through)
    return s if through else None


def junk():
    """Active messages that nobody asked for."""
    out = b""
    for _ in range(20):
        body = os.urandom(random.randrange(8, 100))
        out += struct.pack("<BI", random.randrange(1, 32), len(body)) + body
    return out


def send(kind, target, pieces, gap=0.0):
    s = connect(kind, target)
    if not s:
        return
    try:
        for piece in pieces:
            s.sendall(piece)
            time.sleep(gap)
        s.settimeout(0.3)
        s.recv(100)
    except OSError:
        pass
    kept.append(s)


def attack(kind, target):
    if kind == "silent":
        kept.extend(connect(kind, target) for _ in range(20))
    elif kind == "http":
        send(kind, target, [b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"])
    elif kind == "random":
        send(kind, target, [os.urandom(1 << 20)])
    elif kind == "junk":
        for _ in range(3):
            send(kind, target, [MAGIC + junk()])
    elif kind == "split":
        send(kind, target, [MAGIC, junk()], 0.01)
        whole = MAGIC + junk()
        send(kind, target, [whole[i : i + 1] for i in range(12)] + [whole[12:]], 0.002)
        send(kind, target, [REQUEST[:20], REQUEST[20:], junk()], 0.01)
    elif kind == "half":
        send(kind, target, [REQUEST[:17] + b"\x09" + REQUEST[18:] + junk()])
        send(kind, target, [REQUEST[:30]])
    elif kind == "peer":
        for _ in range(3):
            send(kind, target, [REQUEST, junk()], 0.01)
    elif kind == "storm":
        for i in range(200):
            s = connect(kind, target)
            if not s:
                return
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def main():
    pid, address, kinds = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    last = {}
    while alive(pid):
        try:
            ports = listeners(pid)
        except OSError:
            break
        for host, port in ports:
            # Again and again: the port is there in every state of the guard.
            if time.monotonic() - last.get((host, port), -9) < 0.15:
                continue
            last[(host, port)] = time.monotonic()
            target = (host if address == "-" else address, port)
            for kind in kinds:
                threading.Thread(target=attack, args=(kind, target), daemon=True).start()
        time.sleep(0.002)
    for kind in kinds:
        print(kind, *counts.get(kind, (0, 0)))
    sys.stdout.flush()
    os._exit(0)


main()
