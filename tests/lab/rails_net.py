# SPDX-License-Identifier: Apache-2.0
"""Hosts with several rails on one machine: network namespaces, one link a rail, each of a limited rate.

A rail is an Ethernet of its own: every host has one interface on it (rail0, rail1, ...; 10.77.RAIL.HOST)
and a bridge in one more namespace joins them. Both ends of each link are limited by tbf, so every host sends
and receives at most the rate on each rail.
"""
import os
import shutil
import signal
import subprocess


class Skip(Exception):
    """This machine cannot do it; the text says why."""


def check_machine():
    """Raise Skip unless namespaces, bridges and tbf can be had here."""
    if os.geteuid() != 0:
        raise Skip("network namespaces need root")
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            raise Skip("no %s (apt-get install iproute2 util-linux)" % tool)


def clean_up_when_told_to_end():
    """The first SIGTERM or SIGHUP unwinds as an interrupt does; further ones do not disturb the cleaning up."""
    def unwind(number, _frame):
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, unwind)


class Rails:
    """The hosts and their rails, from __enter__ to __exit__.

    rate_mbit: of each link in each direction."""

    def __init__(self, n_hosts, n_rails, rate_mbit):
        self.n_hosts = n_hosts
        self.n_rails = n_rails
        self.rate_mbit = rate_mbit
        self.prefix = "rails%d" % os.getpid()
        self.hub = self.prefix + "hub"

    def host(self, index):
        """Name of a host's network namespace."""
        return "%sh%d" % (self.prefix, index)

    def address(self, index, rail=0):
        """Address of a host on a rail."""
        return "10.77.%d.%d" % (rail, index + 1)

    def run(self, *words):
        """Run one command; Skip if the kernel has not what it takes."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Skip("%s: %s" % (" ".join(words), done.stderr.strip()))

    def within(self, namespace, *words):
        """The same inside a namespace."""
        self.run("ip", "netns", "exec", namespace, *words)

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def open(self):
        """Make the namespaces and the links."""
        for name in [self.hub] + [self.host(i) for i in range(self.n_hosts)]:
            self.run("ip", "netns", "add", name)
            self.within(name, "ip", "link", "set", "lo", "up")
        for rail in range(self.n_rails):
            bridge = "bridge%d" % rail
            self.within(self.hub, "ip", "link", "add", bridge, "type", "bridge")
            self.within(self.hub, "ip", "link", "set", bridge, "up")
            for index in range(self.n_hosts):
                self.open_link(index, rail, bridge)

    def open_link(self, index, rail, bridge):
        """One host's link to one rail."""
        host, near, far = self.host(index), "rail%d" % rail, "h%dr%d" % (index, rail)
        self.run("ip", "link", "add", near, "netns", host, "type", "veth", "peer", "name", far, "netns",
                 self.hub)
        self.within(self.hub, "ip", "link", "set", far, "master", bridge, "up")
        self.within(host, "ip", "addr", "add", self.address(index, rail) + "/24", "dev", near)
        self.within(host, "ip", "link", "set", near, "up")
        for namespace, name in ((host, near), (self.hub, far)):
            # Without offloads a packet is at most 1500 bytes, which tbf can space evenly.
            self.within(namespace, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate",
                        "%dmbit" % self.rate_mbit, "burst", "64kb", "latency", "50ms")

    def close(self):
        """Remove everything, with what still runs inside."""
        for name in [self.host(i) for i in range(self.n_hosts)] + [self.hub]:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in pids.stdout.split():
                subprocess.run(["kill", "-9", pid], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def sent_bytes(self):
        """Bytes that each host has sent on each rail, headers included: [host][rail]."""
        counts = []
        for index in range(self.n_hosts):
            words = ["ip", "netns", "exec", self.host(index), "cat"]
            words += ["/sys/class/net/rail%d/statistics/tx_bytes" % r for r in range(self.n_rails)]
            # /sys of the namespace is only there after a mount of its own, which ip netns exec makes.
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            counts.append([int(word) for word in text.split()])
        return counts
