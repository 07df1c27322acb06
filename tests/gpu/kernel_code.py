# SPDX-License-Identifier: Apache-2.0
"""The kernels of PTX that nvcc has written: their machine code for one architecture, by ptxas, and what it uses."""
import dataclasses
import pathlib
import re
import subprocess
import tempfile

# Of one multiprocessor of sm_90: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
REGISTERS, REGISTERS_AT_ONCE, WARPS, BLOCKS, PARTITIONS = 65536, 256, 64, 32, 4
SHARED_BYTES, SHARED_BYTES_PER_BLOCK = 233472, 1024


# The machine code of griddepcontrol.wait and of griddepcontrol.launch_dependents.
WAIT, LET_NEXT_BEGIN = "ACQBULK", "PREEXIT"


class Wrong(Exception):
    """The programs or tools are not what this needs."""


@dataclasses.dataclass
class Kernel:
    symbol: str
    name: str = ""
    threads: int = 0  # per block
    registers: int = 0
    stack: int = 0  # bytes per thread
    spills: int = 0  # bytes stored and loaded
    shared: int = 0  # bytes per block
    instructions: dict = dataclasses.field(default_factory=dict)  # opcode with its modifiers: how many
    # The instructions up to the wait of an early launch, in the order of their addresses; all of them if there is no wait. A predicate is
    # before its opcode: "@P0 EXIT".
    begin: list = dataclasses.field(default_factory=list)

    def blocks(self) -> int:
        """How many blocks a multiprocessor holds at a time."""
        warps = -(-self.threads // 32)
        per_warp = -(-self.registers * 32 // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        by_registers = REGISTERS // PARTITIONS // per_warp * PARTITIONS // warps
        by_shared = SHARED_BYTES // (self.shared + SHARED_BYTES_PER_BLOCK)
        return min(by_registers, by_shared, WARPS // warps, BLOCKS)

    def resident(self) -> int:
        """How many threads a multiprocessor holds at a time."""
        return self.blocks() * self.threads

    def count(self, pattern: str) -> int:
        """How many instructions match."""
        return sum(number for opcode, number in self.instructions.items() if re.fullmatch(pattern, opcode))


def entries(text: str) -> list:
    """The symbol of each kernel in a PTX text, and where its text begins and ends."""
    result = []
    for match in re.finditer(r"^(?:\.visible |\.weak )?\.entry (\w+)\(", text, re.MULTILINE):
        depth, end = 0, text.index("{", match.end())
        for brace in re.finditer(r"[{}]", text[end:]):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                result.append((match.group(1), match.start(), end + brace.end()))
                break
    return result


def without_repeated(texts: list) -> list:
    """Each kernel only in the first text that has it: several units instantiate the same ones."""
    seen, result = set(), []
    for text in texts:
        kept, at = [], 0
        for symbol, begin, end in entries(text):
            if symbol in seen:
                kept.append(text[at:begin])
                at = end
            seen.add(symbol)
        text = "".join(kept) + text[at:]
        if entries(text):
            result.append(text)
    return result


def demangled(symbols: list) -> list:
    try:
        done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise Wrong("c++filt, of binutils, is not there") from error
    return done.stdout.splitlines()


def run(command: list) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"{pathlib.Path(command[0]).name} failed:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout + done.stderr


def read_usage(output: str, kernels: dict):
    """What `ptxas -v` says of each kernel."""
    for part in re.split(r"Compiling entry function '", output)[1:]:
        kernel = kernels[part[: part.index("'")]]
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
        used = re.search(r"Used (\d+) registers", part)
        if not frame or not used:
            raise Wrong(f"ptxas said nothing of {kernel.symbol}: {part[:400]}")
        shared = re.search(r"(\d+) bytes smem", part)
        kernel.stack, kernel.spills = int(frame.group(1)), int(frame.group(2)) + int(frame.group(3))
        kernel.registers, kernel.shared = int(used.group(1)), int(shared.group(1)) if shared else 0


def read_instructions(listing: str, kernels: dict):
    """The instructions of each kernel in a listing of nvdisasm."""
    kernel = None
    for line in listing.splitlines():
        if begin := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernel = kernels.get(begin.group(1))
        elif kernel is not None and (found := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)", line)):
            predicate, opcode = found.groups()
            if WAIT not in kernel.instructions:
                kernel.begin.append(f"{predicate.strip()} {opcode}" if predicate else opcode)
            kernel.instructions[opcode] = kernel.instructions.get(opcode, 0) + 1


def compiled(files: list, architecture: str, ptxas: str, nvdisasm: str = "") -> list:
    """The kernels of the files, compiled for an architecture; their instructions only where there is an nvdisasm."""
    texts = [pathlib.Path(file).read_text() for file in files]
    for file, text in zip(files, texts):
        if not entries(text):
            raise Wrong(f"{file} has no kernel")
    texts = without_repeated(texts)
    kernels = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, text in enumerate(texts):
            here = {}
            for symbol, begin, end in entries(text):
                extents = re.search(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?", text[begin:end])
                if not extents:
                    raise Wrong(f"{symbol} does not say how many threads a block has: it needs __launch_bounds__")
                threads = int(extents.group(1)) * int(extents.group(2) or 1) * int(extents.group(3) or 1)
                here[symbol] = Kernel(symbol, threads=threads)
            source, cubin = pathlib.Path(folder) / f"{i}.ptx", pathlib.Path(folder) / f"{i}.cubin"
            source.write_text(text)
            read_usage(run([ptxas, f"-arch={architecture}", "-v", source, "-o", cubin]), here)
            if nvdisasm:
                read_instructions(run([nvdisasm, "-c", cubin]), here)
                empty = [symbol for symbol, kernel in here.items() if not kernel.instructions]
                if empty:
                    raise Wrong(f"nvdisasm listed no instruction of {empty[0]}")
            kernels.update(here)
    for kernel, name in zip(kernels.values(), demangled(list(kernels))):
        kernel.name = name
    return sorted(kernels.values(), key=lambda kernel: kernel.name)
