#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: kernel_budget_test.py. Tests the rules of kernel_budget.py and the reading of PTX, without a compiler of CUDA."""
import contextlib
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import kernel_budget
import kernel_code
from kernel_code import Kernel, Wrong

PTX = """.version 9.0
.target sm_90
.address_size 64
.visible .entry {name}(
\t.param .u64 {name}_param_0
)
.maxntid 256
{{
\t// begin inline asm
\t{{
mov.b32 %r1, 0;
}}
\t// end inline asm
\tret;
}}
"""


def kernel(name: str, **properties) -> Kernel:
    """A kernel that keeps all rules, unless a property breaks one."""
    given = {"threads": 256, "registers": 32, "instructions": {"LDG.E": 1}, **properties}
    return Kernel("_Z1k", f"void cupola::v0_1::impl::{name}(long)", **given)


class Rules(unittest.TestCase):
    def problems(self, *kernels: Kernel) -> str:
        return "\n".join(kernel_budget.over_budget(list(kernels), set()))

    def wrong(self, *kernels: Kernel) -> str:
        with_names = [line for line in kernel_budget.wrong_instructions(list(kernels)) if "no kernel has the name" not in line]
        return "\n".join(with_names)

    def test_a_kernel_within_the_budget_is_no_problem(self):
        self.assertEqual(self.problems(kernel("strided_kernel<MeanAt>", registers=64)), "")

    def test_each_rule_names_the_kernel_and_the_numbers(self):
        self.assertEqual(self.problems(kernel("a_kernel<4>", stack=8)), "a_kernel<4> has 8 bytes of stack; at most 0 are allowed")
        self.assertEqual(self.problems(kernel("a_kernel<4>", spills=12)), "a_kernel<4> has 12 bytes of spills; at most 0 are allowed")
        self.assertEqual(
            self.problems(kernel("a_kernel<4>", registers=65)),
            "a_kernel<4> has 65 registers and 0 bytes of shared memory, so a multiprocessor holds 768 of its threads; at least 1024 are required",
        )
        self.assertIn("holds 512 of its threads", self.problems(kernel("a_kernel<4>", shared=100_000)))

    def test_an_exception_has_a_limit_and_must_be_needed(self):
        name = "strided_kernel<LrnThenPoolBackward<float, 4> >"
        used = set()
        self.assertEqual(kernel_budget.over_budget([kernel(name, registers=104)], used), [])
        self.assertIn("holds 256 of its threads", self.problems(kernel(name, registers=160)))
        self.assertIn("24 bytes of spills", self.problems(kernel(name, spills=24)))
        unneeded = "\n".join(kernel_budget.unneeded(used))
        self.assertNotIn("<LrnThenPoolBackward< for its registers", unneeded)
        self.assertIn("no kernel needs the exception <LrnThenPoolBackward< for its bytes of stack", unneeded)
        self.assertIn(r"<NormBackward<\w+, 4> for its registers", unneeded)

    def test_packs_are_read_and_written_by_16_bytes(self):
        name = "strided_kernel<InPacks<4, MeanAt> >"
        wide = {"LDG.E.128": 1, "STG.E.128": 1}
        self.assertEqual(self.wrong(kernel(name, instructions=wide)), "")
        self.assertEqual(self.wrong(kernel(name, instructions={"LDG.E.128.CONSTANT": 1, "STG.E.EF.128": 1})), "")
        self.assertEqual(
            self.wrong(kernel(name, instructions={"LDG.E.64": 2, "STG.E.128": 1})), "strided_kernel<InPacks<4, MeanAt>> has 0 loads of 16 bytes; at least one is expected"
        )
        self.assertIn("has 0 stores of 16 bytes", self.wrong(kernel("strided_kernel<MaxPoolForward<cupola::v0_1::BFloat16, 8, 3, int> >", instructions={"LDG.E.128": 1})))
        self.assertIn("none is expected", self.wrong(kernel("sum_slabs_kernel<4, false, float>", instructions=wide)))

    def test_local_memory_and_tensor_cores_are_found(self):
        self.assertIn("has 3 loads and stores of local memory", self.wrong(kernel("a_kernel<4>", instructions={"LDL.64": 2, "STL": 1})))
        self.assertIn("has 1 instructions of the tensor cores; none is expected", self.wrong(kernel("a_kernel<4>", instructions={"HMMA.16816.F32.BF16": 1})))

    def early(self, *begin: str) -> str:
        """What is wrong with a kernel that begins so; the rest of it accesses memory as it may."""
        counts = {instruction.split()[-1]: 1 for instruction in begin}
        return "\n".join(kernel_budget.begins_too_early([kernel("a_kernel<4>", begin=list(begin), instructions={"LDG.E": 1, **counts})]))

    def test_all_threads_wait_for_the_kernel_before_before_they_access_memory(self):
        self.assertEqual(self.early("LDC", "S2R", "LDS.64", "STS", "ULDC.64", "BAR.SYNC", "STL", "@P0 IMAD", "ACQBULK"), "")
        self.assertIn("a_kernel<4> does not wait for the kernel before it: it has no ACQBULK", self.early("LDC", "LDG.E", "EXIT"))
        for access in ("LDG.E.128", "LD.E", "@!P1 LDG.E.64.STRONG.SYS", "STG.E", "ST.E.128", "ATOMG.E.ADD.STRONG.GPU", "ATOM.E.ADD", "REDG.E.ADD",
                       "RED.E.ADD", "LDGSTS.E.BYPASS.128", "UBLKCP.S.G", "UTMALDG.2D", "TEX.B"):  # fmt: skip
            self.assertEqual(self.early("LDC", access, "ACQBULK"), f"a_kernel<4> accesses global memory before it waits for the kernel before it: {access}")
        for flow in ("@P0 BRA", "EXIT", "CALL.REL.NOINC", "@P0 EXIT"):
            self.assertEqual(self.early(flow, "ACQBULK"), f"a_kernel<4> may leave the wait out before it waits for the kernel before it: {flow}")
        self.assertEqual(self.early("S2R", "@P0 ACQBULK"), "a_kernel<4> waits for the kernel before it in some threads only: @P0 ACQBULK")
        self.assertIn("lets the next kernel begin before it waits", self.early("PREEXIT", "ACQBULK"))

    def test_a_pattern_without_a_kernel_is_a_problem(self):
        self.assertIn("no kernel has the name FromBytesAt<: remove it", kernel_budget.wrong_instructions([kernel("a_kernel<4>")]))


class Code(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory()) if hasattr(self, "enterContext") else self.folder_until_the_end()

    def folder_until_the_end(self) -> str:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        return stack.enter_context(tempfile.TemporaryDirectory())

    def test_a_file_without_a_kernel_is_an_error(self):
        file = pathlib.Path(self.folder, "unit.ptx")
        file.write_text(PTX.partition(".visible")[0])
        with self.assertRaisesRegex(Wrong, "unit.ptx has no kernel"):
            kernel_code.compiled([file], "sm_90", "no-ptxas")

    def test_each_kernel_is_compiled_once(self):
        one, two = PTX.format(name="_Z1a"), PTX.format(name="_Z1a") + PTX.format(name="_Z1b").partition("64\n")[2]
        first, second = kernel_code.without_repeated([one, two])
        self.assertEqual(first, one)
        self.assertEqual([symbol for symbol, _, _ in kernel_code.entries(second)], ["_Z1b"])
        self.assertEqual(second.count("begin inline asm"), 1)
        self.assertEqual(kernel_code.without_repeated([one, one]), [one])

    def test_the_messages_of_ptxas_are_read(self):
        kernels = {"_Z1a": Kernel("_Z1a")}
        kernel_code.read_usage(
            "ptxas info    : Compiling entry function '_Z1a' for 'sm_90'\nptxas info    : Function properties for _Z1a\n"
            "    24 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads\nptxas info    : Used 40 registers, used 1 barriers, 2688 bytes smem\n",
            kernels,
        )
        found = kernels["_Z1a"]
        self.assertEqual((found.registers, found.stack, found.spills, found.shared), (40, 24, 36, 2688))
        with self.assertRaisesRegex(Wrong, "ptxas said nothing of _Z1a"):
            kernel_code.read_usage("Compiling entry function '_Z1a' for 'sm_90'\n", kernels)

    def test_the_instructions_of_a_listing_are_counted(self):
        kernels = {"_Z1a": Kernel("_Z1a"), "_Z1b": Kernel("_Z1b")}
        kernel_code.read_instructions(
            '\t.section\t.text._Z1a,"ax",@progbits\n'
            "        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;\n"
            "        /*0010*/              @!P0 EXIT ;\n"
            "        /*0020*/               @P1 LDG.E.128 R8, desc[UR4][R2.64+0x10] ;\n"
            '\t.section\t.text._Z1b,"ax",@progbits\n'
            "        /*0000*/                   EXIT ;\n",
            kernels,
        )
        self.assertEqual(kernels["_Z1a"].instructions, {"LDG.E.128": 2, "EXIT": 1})
        self.assertEqual(kernels["_Z1b"].instructions, {"EXIT": 1})
        self.assertEqual(kernels["_Z1a"].begin, ["LDG.E.128", "@!P0 EXIT", "@P1 LDG.E.128"])

    def test_a_kernel_begins_up_to_its_wait(self):
        kernels = {"_Z1a": Kernel("_Z1a")}
        lines = ("LDC R1, c[0x0][0x28] ;", "@P0  ACQBULK ;", "PREEXIT ;", "LDG.E R4, desc[UR4][R2.64] ;", "ACQBULK ;")
        listing = "".join(f"        /*{16 * i:04x}*/                   {line}\n" for i, line in enumerate(lines))
        kernel_code.read_instructions(f'\t.section\t.text._Z1a,"ax",@progbits\n{listing}', kernels)
        self.assertEqual(kernels["_Z1a"].begin, ["LDC", "@P0 ACQBULK"])

    def test_registers_shared_memory_and_threads_limit_the_blocks(self):
        def blocks(threads: int, registers: int, shared: int = 0) -> int:
            return Kernel("_Z1a", threads=threads, registers=registers, shared=shared).blocks()

        # From CUDA's occupancy calculator for compute capability 9.0.
        self.assertEqual([blocks(256, registers) for registers in (32, 33, 40, 41, 48, 64, 65, 80, 104)], [8, 6, 6, 5, 5, 4, 3, 3, 2])
        self.assertEqual([blocks(32, 16), blocks(1024, 64), blocks(1024, 32), blocks(256, 32, 48_000)], [32, 1, 2, 4])


if __name__ == "__main__":
    unittest.main()
