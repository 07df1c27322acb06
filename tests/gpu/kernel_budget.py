#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each kernel uses on sm_90 and which instructions it has, compared with the rules below.

Usage: kernel_budget.py --ptxas PROGRAM [--nvdisasm PROGRAM] [--list] FILE.ptx...

ptxas compiles what nvcc has written, so no GPU is needed. Without nvdisasm the instructions are not checked, and a message says so. A kernel may be launched before the end of the one before it: the machine code has to wait for that one
first. --list prints a line per kernel: registers, threads that a multiprocessor holds at a time, bytes of stack, loads of 16 bytes / all
loads, stores of 16 bytes / all stores. Exit status 1 if a rule is broken.

A pattern is searched in a kernel's name without namespaces: "strided_kernel<InPacks<4, MeanAt>>". An exception or a pattern that no kernel
needs is an error, so that the lists stay true.
"""
import argparse
import os
import dataclasses
import re
import sys

from kernel_code import LET_NEXT_BEGIN, WAIT, Wrong, compiled, run

ARCHITECTURE = "sm_90"

# The rules. A kernel that waits for memory needs many threads: half of the 2,048 that a multiprocessor can hold. Nothing is on the stack.
LEAST_RESIDENT, MOST_STACK, MOST_SPILLS = 1024, 0, 0


@dataclasses.dataclass
class Exception_:
    pattern: str
    why: str
    resident: int = LEAST_RESIDENT
    stack: int = MOST_STACK  # bytes per thread
    spills: int = MOST_SPILLS  # bytes stored and loaded


EXCEPTIONS = [
    Exception_("<LrnThenPoolBackward<", "a thread keeps 24 values and 16 gradients, and reads up to 34 times 16 bytes at once", 512, 8, 16),
    Exception_(r"<NormBackward<\w+, 4>", "a thread keeps 24 values and 16 gradients", 768),
    Exception_("<MaxPoolBackward<float, 4, unsigned char>", "two values are stored for one more block per multiprocessor", stack=8, spills=16),
    Exception_("<UpdateArenaAt<PlainLambFormula>>", "two values are stored for one more block per multiprocessor", stack=8, spills=16),
    Exception_("^embedding_gradient_kernel<(BFloat16|Float16)>", "four addresses are stored per id that is found", stack=24, spills=40),
    Exception_("^norm_moments_kernel<float, 4>", "one address is stored before the loop over rows", stack=8, spills=16),
    Exception_("<8, LrnThenPoolBackward<", "the same, and adds 8 sums", 512),
    Exception_("^linear_chain_kernel<(float, true|Float16)", "the same, and a few numbers of the loops around are stored", 512, 16, 120),
    Exception_("^linear_chain_kernel<", "a thread keeps 32 sums, and reads up to 8 times 16 bytes ahead", 512),
    Exception_(r"^row_reports_kernel<\d+, CrossEntropyRow<", "1,024 threads have 64 registers each, and the sums are in double", stack=24, spills=56),
]
# The version of ptxas with which each exception is needed. Another one may do better.
VERSION = "13.0"

# The kernels whose threads read and write packs of 16 bytes, and those of them that do so in one direction only.
PACKS = (
    r"InPacks<[48], |InRows<[48], |TakeBatch<4>|<(float, 4|BFloat16, 8|Float16, 8)\b|<(LrnThenPool|PoolThenLrn|Norm)(Forward|Backward)<"
    r"|^linear_chain_kernel<|^sum_slabs_kernel<[48], |^norm_(moments|apply|gradient_sums|backward)_kernel<float, 4>"
)
ONLY_LOADS = {
    r"^linear_chain_kernel<": "a warp writes a row of 32 sums at a time",
    r"^norm_(moments|gradient_sums)_kernel<": "they write sums only",
    r"^sum_slabs_kernel<\w+, false, ": "without a mask it writes sums only",
}
ONLY_STORES = {"FromBytesAt<": "it reads a byte per element", "<CopyWeight,": "it reads one value"}
# Our kernels that use the tensor cores.
TENSOR_CORES = (r"^linear_chain_kernel<(float, true|BFloat16|Float16)",)

WIDE_LOAD, WIDE_STORE, LOAD, STORE = r"LDG?\.E\.(\w+\.)*128(\..+)?", r"STG?\.E\.(\w+\.)*128(\..+)?", r"LDG?\.E(\..+)?", r"STG?\.E(\..+)?"
LOCAL, MATRIX = r"(LDL|STL)(\..+)?", r"(HMMA|HGMMA|IMMA|QGMMA|WGMMA)(\..+)?"
# What reads or writes global memory: all loads, stores and atomics but those of shared memory, local memory and constants, and the copies.
GLOBAL = r"(?!LDS|LDL|LDC|LDGDEPBAR|LDTM|STS|STL|STTM|ATOMS)(LD|ST|ATOM|RED|TEX|TLD|SULD|SUST|SURED|SUATOM|UBLK|UTMA|UTMARED)\w*(\..+)?"
# What may lead past an instruction that follows it.
FLOW = r"(BRA|BRX|JMP|JMX|CALL|RET|EXIT|BREAK|KILL)\w*(\..+)?"


def short(name: str) -> str:
    name = re.sub(r"\(anonymous namespace\)::|\b\w+_test_cpp::|\bcupola::(v\w+::)?|\bimpl::", "", name.removeprefix("void "))
    return re.sub(r"\s+>", ">", name[: name.index("(")])


def over_budget(kernels: list, used: set) -> list:
    """The kernels that use more than they may. Adds the exceptions that are needed to `used`."""
    problems = []
    for kernel in kernels:
        name = short(kernel.name)
        found = [exception for exception in EXCEPTIONS if re.search(exception.pattern, name)]
        limit = found[0] if found else Exception_("", "")
        for what, value, most, rule in (("bytes of stack", kernel.stack, limit.stack, MOST_STACK), ("bytes of spills", kernel.spills, limit.spills, MOST_SPILLS)):
            if value > most:
                problems.append(f"{name} has {value} {what}; at most {most} are allowed")
            if value > rule and found:
                used.add((limit.pattern, what))
        if kernel.resident() < limit.resident:
            problems.append(
                f"{name} has {kernel.registers} registers and {kernel.shared} bytes of shared memory, so a multiprocessor holds"
                f" {kernel.resident()} of its threads; at least {limit.resident} are required"
            )
        if kernel.resident() < LEAST_RESIDENT and found:
            used.add((limit.pattern, "registers"))
    return problems


def unneeded(used: set) -> list:
    problems = []
    for exception in EXCEPTIONS:
        declared = [("bytes of stack", exception.stack > MOST_STACK), ("bytes of spills", exception.spills > MOST_SPILLS), ("registers", exception.resident < LEAST_RESIDENT)]
        problems += [f"no kernel needs the exception {exception.pattern} for its {what}: remove it" for what, given in declared if given and (exception.pattern, what) not in used]
    return problems


def begins_too_early(kernels: list) -> list:
    """Kernels that may read or write what a kernel before them still works on, when they are launched before its end: all threads of a
    kernel wait before any access of global memory, and before they let the next kernel begin."""
    problems = []
    for kernel in kernels:
        name = short(kernel.name)
        if not kernel.count(WAIT):
            problems.append(f"{name} does not wait for the kernel before it: it has no {WAIT}; its first statement is to be begin_kernel()")
            continue
        *before, wait = kernel.begin
        if wait != WAIT:
            problems.append(f"{name} waits for the kernel before it in some threads only: {wait}")
        for instruction in before:
            opcode = instruction.split()[-1]
            what = "accesses global memory" if re.fullmatch(GLOBAL, opcode) else "may leave the wait out" if re.fullmatch(FLOW, opcode) else ""
            if opcode == LET_NEXT_BEGIN:
                what = "lets the next kernel begin"
            if what:
                problems.append(f"{name} {what} before it waits for the kernel before it: {instruction}")
    return problems


def wrong_instructions(kernels: list) -> list:
    """Kernels without the loads, stores and products that they are to have, or with stores to local memory that no exception allows."""
    problems, used = [], set()
    for kernel in kernels:
        name = short(kernel.name)
        if re.search(PACKS, name):
            only_loads = [pattern for pattern in ONLY_LOADS if re.search(pattern, name)]
            only_stores = [pattern for pattern in ONLY_STORES if re.search(pattern, name)]
            used.update(only_loads + only_stores)
            for what, wide, excepted in (("load", WIDE_LOAD, only_stores), ("store", WIDE_STORE, only_loads)):
                if bool(kernel.count(wide)) == bool(excepted):
                    problems.append(f"{name} has {kernel.count(wide)} {what}s of 16 bytes; {'none is' if excepted else 'at least one is'} expected")
        if kernel.stack == 0 and kernel.count(LOCAL):
            problems.append(f"{name} has {kernel.count(LOCAL)} loads and stores of local memory, but no stack")
        matrix = any(re.search(pattern, name) for pattern in TENSOR_CORES)
        if bool(kernel.count(MATRIX)) != matrix:
            problems.append(f"{name} has {kernel.count(MATRIX)} instructions of the tensor cores; {'at least one is' if matrix else 'none is'} expected")
    for pattern in [*ONLY_LOADS, *ONLY_STORES, *TENSOR_CORES]:
        if not any(re.search(pattern, short(kernel.name)) for kernel in kernels) or (pattern not in TENSOR_CORES and pattern not in used):
            problems.append(f"no kernel has the name {pattern}: remove it")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--nvdisasm", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE.ptx")
    arguments = parser.parse_args()

    version = re.search(r"release ([\d.]+)", run([arguments.ptxas, "--version"]))
    kernels = compiled(arguments.files, ARCHITECTURE, arguments.ptxas, arguments.nvdisasm)
    used = set()
    problems = over_budget(kernels, used)
    if version and version.group(1) == VERSION:
        problems += unneeded(used)
    if arguments.nvdisasm:
        problems += wrong_instructions(kernels) + begins_too_early(kernels)
    elif os.environ.get("CUPOLA_REQUIRE_CUDA"):
        problems.append("there is no nvdisasm, and CUPOLA_REQUIRE_CUDA is set: the instructions cannot be checked")
    else:
        print("there is no nvdisasm: the instructions were not checked")
    if arguments.list:
        for kernel in kernels:
            wide = f"{kernel.count(WIDE_LOAD):3}/{kernel.count(LOAD):<3} {kernel.count(WIDE_STORE):3}/{kernel.count(STORE):<3}"
            print(f"{kernel.registers:3} {kernel.resident():4} {kernel.stack:3} {wide} {short(kernel.name)}")
    most = max(kernels, key=lambda kernel: kernel.registers)
    full = sum(kernel.resident() == 2048 for kernel in kernels)
    print(f"{len(kernels)} kernels for {ARCHITECTURE} by ptxas {version.group(1) if version else '?'}: {full} fill a multiprocessor, at most {most.registers} registers ({short(most.name)}), {sum(kernel.spills > 0 for kernel in kernels)} with spills")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
