# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine for benchmarks of several processes: two network namespaces with a host name each, joined by a pair of virtual
interfaces whose rate can be limited. It needs root. All that it makes has addresses of its own and is removed at the end."""

import atexit
import os
import pathlib
import shutil
import subprocess
import tempfile

NET = "10.77.{}.{}"

AGENT = """#!/usr/bin/env bash
# Takes the place of ssh: runs a command on the host with the address that mpirun names.
while [[ "$1" == -* ]]; do shift; done
host=$1 && shift
exec ip netns exec "{name}-${{host##*.}}" unshare --uts bash -c "hostname {name}-${{host##*.}}; $*"
"""


def why_not():
    """The reason why there can be no hosts; empty if there can be."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc", "unshare", "hostname") if shutil.which(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Hosts:
    def __init__(self):
        self.name = f"cupola-{os.getpid()}"
        self.number = os.getpid() % 200 + 1
        self.addresses = [NET.format(self.number, end) for end in (1, 2)]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cupola-hosts-"))
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT.format(name=self.name))
        self.agent.chmod(0o755)
        atexit.register(self.remove)
        ends = [f"cu{os.getpid()}a", f"cu{os.getpid()}b"]
        self.spaces, self.ends = [f"{self.name}-1", f"{self.name}-2"], ends
        for space in self.spaces:
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "link", "add", ends[0], "netns", self.spaces[0], "type", "veth", "peer", "name", ends[1], "netns", self.spaces[1])
        for space, end, address in zip(self.spaces, ends, self.addresses):
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", end)
            run("ip", "-n", space, "link", "set", end, "up")
            # As with a network card, whose driver keeps its queue short: an acknowledgement does not wait behind a megabyte of data.
            run("ip", "netns", "exec", space, "sysctl", "-q", "-w", f"net.ipv4.tcp_limit_output_bytes={1 << 17}")

    def limit(self, rate):
        """Limits what each host sends, such as "1gbit"; None for no limit."""
        for space, end in zip(self.spaces, self.ends):
            run("tc", "-n", space, "qdisc", "del", "dev", end, "root", check=False)
            if rate is not None:
                run("tc", "-n", space, "qdisc", "add", "dev", end, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")

    def mpirun(self, per_host, program):
        """The command that starts `per_host` processes on each host."""
        net = NET.format(self.number, 0) + "/24"
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
        old = " 4." in version.split("\n", 1)[0]
        words = ["mpirun", "--mca" if old else "--prtemca", "plm_rsh_agent" if old else "plm_ssh_agent", self.agent]
        words += ["--mca", "oob_tcp_if_include", net] if old else ["--prtemca", "prte_if_include", net]
        words += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self,vader" if old else "tcp,self,sm", "--mca", "btl_tcp_if_include", net]
        words += ["--host", ",".join(f"{address}:{per_host}" for address in self.addresses), "-n", 2 * per_host, "--bind-to", "none"]
        words += program
        line = " ".join(f"'{word}'" for word in words)
        return ["ip", "netns", "exec", self.spaces[0], "unshare", "--uts", "bash", "-c", f"hostname {self.spaces[0]}; exec {line}"]

    def remove(self):
        for space in self.spaces:
            run("ip", "netns", "del", space, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
